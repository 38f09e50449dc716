// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "collect/look.h"

#define OBJECTS_MAX 65536
#define PATH_BYTES_MAX (16 << 20)
/* Kept without references: names may still be asked for, and the binary is likely to be run again. */
#define IDLE_MAX 2048
#define ALIASES_MAX 65536
#define OPEN_TIMEOUT_NS (2 * NSEC_PER_SEC)
#define OPEN_RETRY_NS (30 * NSEC_PER_SEC)

/* Another way to say which object a file is; keys of the alias index. */
struct alias {
	uint64_t dev, ino, generation;
	uint64_t key; /* of the object, which may be gone */
};

TAILQ_HEAD(object_list, object);

struct binaries {
	pthread_mutex_t lock;
	struct opener *opener;
	int proc_fd;
	uint32_t max_fds;

	struct object **objects; /* [0] unused */
	size_t n, cap;
	uint32_t *unused; /* ids to use again */
	size_t n_unused, cap_unused;
	size_t n_objects, n_fds, n_idle, path_bytes;
	uint64_t next_key, refused, last_version;
	struct index by_key; /* under the lock */
	struct index by_build_id, by_file; /* drain thread */
	struct index by_alias;
	struct alias *aliases; /* [0] unused */
	size_t n_aliases, cap_aliases;
	struct object_list open, idle;
	struct object *anon, *vdso, *vdso32;
	struct filesystems filesystems;
};

/* ---- indexes ------------------------------------------------------------------------------------------- */

static uint64_t hash_key(uint64_t key)
{
	return XXH3_64bits(&key, sizeof(key));
}

static uint64_t hash_file(uint64_t dev, uint64_t ino, uint64_t generation)
{
	uint64_t v[3] = { dev, ino, generation };

	return XXH3_64bits(v, sizeof(v));
}

static uint64_t hash_build_id(const struct file_identity *id)
{
	return XXH3_64bits_withSeed(id->build_id, id->build_id_len, id->author);
}

static bool key_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct binaries *b = ctx;

	return b->objects[id]->key == *(const uint64_t *)key;
}

static bool build_id_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct binaries *b = ctx;
	const struct file_identity *a = &b->objects[id]->identity, *want = key;

	return a->author == want->author && a->build_id_len == want->build_id_len &&
	       memcmp(a->build_id, want->build_id, want->build_id_len) == 0;
}

static bool file_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct binaries *b = ctx;
	const struct file_identity *a = &b->objects[id]->identity, *want = key;

	return a->dev == want->dev && a->ino == want->ino && a->generation == want->generation;
}

static bool alias_equal(const void *ctx, uint32_t id, const void *key)
{
	const struct binaries *b = ctx;
	const struct file_identity *want = key;
	const struct alias *a = &b->aliases[id];

	return a->dev == want->dev && a->ino == want->ino && a->generation == want->generation;
}

static struct object *find_key(const struct binaries *b, uint64_t key)
{
	uint32_t id = index_find(&b->by_key, hash_key(key), key_equal, b, &key);

	return id ? b->objects[id] : NULL;
}

/* Files whose build-id was found once need not be asked for it again. */
static struct object *find_alias(const struct binaries *b, const struct file_identity *f)
{
	uint32_t id = index_find(&b->by_alias, hash_file(f->dev, f->ino, f->generation),
				 alias_equal, b, f);

	return id ? find_key(b, b->aliases[id].key) : NULL;
}

static void set_alias(struct binaries *b, const struct file_identity *f, uint64_t key)
{
	uint64_t hash = hash_file(f->dev, f->ino, f->generation);
	uint32_t id = index_find(&b->by_alias, hash, alias_equal, b, f);

	if (id) {
		b->aliases[id].key = key;
		return;
	}
	/* A cache: beginning anew costs a query per file. */
	if (b->n_aliases >= ALIASES_MAX) {
		index_clear(&b->by_alias);
		b->n_aliases = 1;
	}
	if (b->n_aliases == 0)
		b->n_aliases = 1;
	if (ARRAY_GROW(b->aliases, b->cap_aliases, b->n_aliases + 1) < 0 ||
	    index_add(&b->by_alias, hash, (uint32_t)b->n_aliases) < 0)
		return;
	b->aliases[b->n_aliases++] = (struct alias){
		.dev = f->dev, .ino = f->ino, .generation = f->generation, .key = key
	};
}

/* ---- objects ------------------------------------------------------------------------------------------- */

static uint64_t object_hash(const struct object *o)
{
	const struct file_identity *f = &o->identity;

	return f->build_id_len ? hash_build_id(f) : hash_file(f->dev, f->ino, f->generation);
}

static struct index *object_index(struct binaries *b, const struct object *o)
{
	return o->identity.build_id_len ? &b->by_build_id : &b->by_file;
}

static void object_destroy(struct object *o)
{
	close_fd(o->fd);
	free(o->path);
	free(o->raw_path);
	free(o);
}

static size_t path_cost(const struct object *o)
{
	return strlen(o->path) + 1 + (o->raw_path ? strlen(o->raw_path) + 1 : 0);
}

static void forget_fd(struct binaries *b, struct object *o)
{
	if (o->fd < 0)
		return;
	TAILQ_REMOVE(&b->open, o, open_link);
	o->fd = close_fd(o->fd);
	b->n_fds--;
}

static void object_remove(struct binaries *b, struct object *o)
{
	index_del(object_index(b, o), object_hash(o), o->id);
	pthread_mutex_lock(&b->lock);
	index_del(&b->by_key, hash_key(o->key), o->id);
	forget_fd(b, o);
	pthread_mutex_unlock(&b->lock);
	b->objects[o->id] = NULL;
	b->unused[b->n_unused++] = o->id;
	b->n_objects--;
	b->path_bytes -= path_cost(o);
	object_destroy(o);
}

static int set_path(struct object *o, const char *path, size_t len)
{
	size_t size = 3 * len + 1;
	const char *slash;

	o->path = malloc(size);
	if (!o->path)
		return -ENOMEM;
	if (utf8_sanitize(o->path, size, path, len) != len || memcmp(o->path, path, len) != 0) {
		o->raw_path = strndup(path, len);
		if (!o->raw_path)
			return -ENOMEM;
	}
	slash = strrchr(o->path, '/');
	o->name = slash ? slash + 1 : o->path;
	return 0;
}

static uint32_t new_id(struct binaries *b)
{
	int r;

	if (b->n_unused > 0)
		return b->unused[--b->n_unused];
	if (b->n == 0)
		b->n = 1;
	/* The symbol thread looks into the array, which may move. */
	pthread_mutex_lock(&b->lock);
	r = ARRAY_GROW(b->objects, b->cap, b->n + 1);
	pthread_mutex_unlock(&b->lock);
	if (r < 0 || ARRAY_GROW(b->unused, b->cap_unused, b->n + 1) < 0)
		return 0;
	return (uint32_t)b->n++;
}

static void format_build_id(struct object *o)
{
	static const char digits[] = "0123456789abcdef";
	char *p = o->build_id;

	for (size_t i = 0; i < o->identity.build_id_len; i++) {
		*p++ = digits[o->identity.build_id[i] >> 4];
		*p++ = digits[o->identity.build_id[i] & 15];
	}
	*p = 0;
}

static int insert(struct binaries *b, struct object *o)
{
	int r;

	r = index_add(object_index(b, o), object_hash(o), o->id);
	if (r < 0)
		return r;
	pthread_mutex_lock(&b->lock);
	b->objects[o->id] = o;
	r = index_add(&b->by_key, hash_key(o->key), o->id);
	pthread_mutex_unlock(&b->lock);
	if (r < 0)
		index_del(object_index(b, o), object_hash(o), o->id);
	return r;
}

/* Makes room by dropping an idle object, if there is one. */
static bool make_room(struct binaries *b, size_t path_len)
{
	while (b->n_objects >= OBJECTS_MAX || b->path_bytes + 2 * path_len > PATH_BYTES_MAX) {
		struct object *victim = TAILQ_FIRST(&b->idle);

		if (!victim)
			return false;
		TAILQ_REMOVE(&b->idle, victim, idle_link);
		b->n_idle--;
		object_remove(b, victim);
	}
	return true;
}

static struct object *object_new(struct binaries *b, int kind, const char *path, size_t path_len,
				 const struct file_identity *identity)
{
	struct object *o;

	path_len = MIN(path_len, (size_t)PATH_LEN_MAX);
	if (!make_room(b, path_len) || !(o = new0(struct object, 1))) {
		b->refused++;
		return NULL;
	}
	o->fd = -1;
	o->kind = kind;
	o->refs = 1;
	o->identity = *identity;
	format_build_id(o);
	o->id = set_path(o, path, path_len) < 0 ? 0 : new_id(b);
	o->key = ++b->next_key;
	if (!o->id || insert(b, o) < 0) {
		if (o->id) {
			b->objects[o->id] = NULL;
			b->unused[b->n_unused++] = o->id;
		}
		object_destroy(o);
		b->refused++;
		return NULL;
	}
	b->n_objects++;
	b->path_bytes += path_cost(o);
	return o;
}

struct object *object_ref(struct object *o)
{
	o->refs++;
	return o;
}

/* A reference to an object that may be idle. */
static struct object *revive(struct binaries *b, struct object *o)
{
	if (o->refs == 0) {
		TAILQ_REMOVE(&b->idle, o, idle_link);
		b->n_idle--;
	}
	return object_ref(o);
}

struct object *object_unref(struct binaries *b, struct object *o)
{
	if (!o || --o->refs > 0)
		return NULL;
	TAILQ_INSERT_TAIL(&b->idle, o, idle_link);
	b->n_idle++;
	return NULL;
}

uint64_t binaries_new_version(struct binaries *b)
{
	return ++b->last_version;
}

void binaries_trim(struct binaries *b)
{
	while (b->n_idle > IDLE_MAX) {
		struct object *o = TAILQ_FIRST(&b->idle);

		TAILQ_REMOVE(&b->idle, o, idle_link);
		b->n_idle--;
		object_remove(b, o);
	}
}

/* ---- descriptors --------------------------------------------------------------------------------------- */

/* Takes over fd. Called with the lock held. */
static void keep_fd(struct binaries *b, struct object *o, int fd)
{
	if (o->fd >= 0 || b->max_fds == 0) {
		close_fd(fd);
		return;
	}
	while (b->n_fds >= b->max_fds)
		forget_fd(b, TAILQ_FIRST(&b->open));
	o->fd = fd;
	b->n_fds++;
	TAILQ_INSERT_TAIL(&b->open, o, open_link);
}

static void remember_source(struct binaries *b, struct object *o, const struct sighting *s,
			    const struct look *l)
{
	if (l->slow_dev) {
		pthread_mutex_lock(&b->lock);
		o->slow_dev = l->slow_dev;
		pthread_mutex_unlock(&b->lock);
	}
	/* Who comes later with the same claim must not say where the file is. */
	if ((o->identity.author & AUTHOR_UNSEEN) && o->pids[0])
		return;
	pthread_mutex_lock(&b->lock);
	o->pids[0] = s->pid;
	o->pids[1] = s->parent;
	o->start = s->start;
	o->end = s->end;
	pthread_mutex_unlock(&b->lock);
}

static int duplicate(struct binaries *b, struct object *o)
{
	int fd = fcntl(o->fd, F_DUPFD_CLOEXEC, 3);

	TAILQ_REMOVE(&b->open, o, open_link);
	TAILQ_INSERT_TAIL(&b->open, o, open_link);
	return fd < 0 ? negative_errno() : fd;
}

/* What to ask the opener for; called with the lock held. */
static int make_request(struct binaries *b, const struct object *o, struct open_request *rq)
{
	if (o->kind != BINARY_ELF)
		return -ENOENT;
	if (o->failed_mono_ns && mono_now_ns() - o->failed_mono_ns < OPEN_RETRY_NS)
		return -EAGAIN;
	*rq = (struct open_request){
		.proc_fd = b->proc_fd,
		.pids = { o->pids[0], o->pids[1] },
		.start = o->start,
		.end = o->end,
		.identity = o->identity,
		.slow_dev = o->slow_dev,
	};
	return 0;
}

/* The path may change when the lock is not held. */
static int add_path(const struct object *o, struct open_request *rq, char **ret)
{
	const char *path = o->raw_path ?: o->path;

	if (path[0] != '/')
		return 0;
	*ret = strdup(path);
	if (!*ret)
		return -ENOMEM;
	rq->path = *ret;
	return 0;
}

int binaries_open(struct binaries *b, uint64_t key)
{
	_cleanup_free_ char *path = NULL;
	struct open_request rq = {};
	struct object *o;
	int r = -ENOENT, fd;

	pthread_mutex_lock(&b->lock);
	o = find_key(b, key);
	if (o)
		r = o->fd >= 0 ? duplicate(b, o) : make_request(b, o, &rq);
	if (o && o->fd < 0 && r >= 0)
		r = add_path(o, &rq, &path);
	if (!o || o->fd >= 0 || r < 0) {
		pthread_mutex_unlock(&b->lock);
		return r;
	}
	pthread_mutex_unlock(&b->lock);

	fd = open_with_deadline(b->opener, &rq, OPEN_TIMEOUT_NS);

	pthread_mutex_lock(&b->lock);
	o = find_key(b, key); /* it may have gone meanwhile */
	/* Nothing was learned of the file where the opener had no time for it. */
	if (o && fd < 0 && fd != -EBUSY)
		o->failed_mono_ns = mono_now_ns();
	/* What does not answer any more is noticed by the opener alone. */
	if (o && fd >= 0 && !o->slow_dev) {
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

		if (copy >= 0)
			keep_fd(b, o, copy);
	}
	pthread_mutex_unlock(&b->lock);
	return fd;
}

int binaries_open_debug_file(struct binaries *b, uint64_t key, const char *paths, size_t n,
			     size_t *ret_which)
{
	struct open_request rq = {};
	const struct object *o;
	int r;

	pthread_mutex_lock(&b->lock);
	o = find_key(b, key);
	r = o ? make_request(b, o, &rq) : -ENOENT;
	pthread_mutex_unlock(&b->lock);
	rq.path = paths;
	rq.n_debug = n;
	return r < 0 ? r : open_debug_with_deadline(b->opener, &rq, OPEN_TIMEOUT_NS, ret_which);
}

/* ---- seeing ---------------------------------------------------------------------------------------------- */

static bool is_memory(const struct sighting *s)
{
	static const char *const prefixes[] = { "//anon", "/anon_hugepage", "[" };

	if (s->path_len == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		size_t n = strlen(prefixes[i]);

		if (s->path_len >= n && memcmp(s->path, prefixes[i], n) == 0)
			return true;
	}
	/* /dev/zero mapped shared or as memory is anonymous in all but name. */
	return s->path_len == 9 && memcmp(s->path, "/dev/zero", 9) == 0;
}

static struct object *find_identity(struct binaries *b, const struct file_identity *f)
{
	uint32_t id;

	if (f->build_id_len)
		id = index_find(&b->by_build_id, hash_build_id(f), build_id_equal, b, f);
	else
		id = index_find(&b->by_file, hash_file(f->dev, f->ino, f->generation), file_equal,
				b, f);
	return id ? b->objects[id] : NULL;
}

/* An object that was known by its file turns out to have a build-id. */
static struct object *learn_build_id(struct binaries *b, const struct file_identity *f)
{
	struct object *o = f->ino ? find_alias(b, f) : NULL;

	if (!o || o->identity.build_id_len)
		return NULL;
	index_del(&b->by_file, object_hash(o), o->id);
	/* The symbol stage reads identities when it opens a binary. */
	pthread_mutex_lock(&b->lock);
	memcpy(o->identity.build_id, f->build_id, f->build_id_len);
	o->identity.build_id_len = f->build_id_len;
	o->identity.author = f->author;
	format_build_id(o);
	pthread_mutex_unlock(&b->lock);
	/* Without memory it is only not found this way. */
	return index_add(&b->by_build_id, object_hash(o), o->id) < 0 ? NULL : o;
}

/* The key of an alias for those who are gone too soon: what was last seen to have this build-id at this path. */
static struct file_identity by_path(const struct sighting *s, const struct file_identity *f)
{
	return (struct file_identity){
		.dev = XXH3_64bits(f->build_id, f->build_id_len),
		.ino = XXH3_64bits(s->path, s->path_len),
		.generation = UINT64_MAX, /* no file's */
	};
}

static struct object *find_claimed(struct binaries *b, const struct sighting *s,
				   struct file_identity *f, const struct look *l)
{
	struct file_identity path = by_path(s, f);
	struct object *o;

	if (l->path_fd < 0) {
		o = find_alias(b, &path);
		if (o)
			return o;
		f->author = path.ino | AUTHOR_UNSEEN;
	}
	o = find_identity(b, f) ?: learn_build_id(b, f);
	if (o && l->path_fd >= 0)
		set_alias(b, &path, o->key);
	return o;
}

static struct object *find_object(struct binaries *b, const struct sighting *s,
				  struct file_identity *f, struct look *l)
{
	_cleanup_close_ int own_fd = -1;
	struct object *o = f->build_id_len ? find_identity(b, f) : NULL;
	int pid_fd = s->pid_fd;

	if (o)
		return o;
	if (pid_fd < 0 && !s->gone)
		pid_fd = own_fd = proc_open_pid(b->proc_fd, s->pid);
	if (pid_fd >= 0)
		look_at_file(&b->filesystems, s, pid_fd, f, l);
	if (f->build_id_len)
		return find_claimed(b, s, f, l);
	o = find_alias(b, f);
	if (o)
		return o;
	/* Only now is the file new, and worth the kernel's reading of its notes. */
	if (l->path_fd >= 0)
		ask_build_id(s, pid_fd, f);
	return find_identity(b, f);
}

static struct object *make_object(struct binaries *b, const struct sighting *s,
				  const struct file_identity *f, const struct look *l)
{
	_cleanup_close_ int fd = -1;
	struct object *o;
	struct stat st;

	if (path_known(s) || l->path_fd < 0)
		o = object_new(b, BINARY_ELF, s->path, s->path_len, f);
	else
		o = object_new(b, BINARY_ELF, l->path, l->path_len, f);
	if (!o || l->path_fd < 0)
		return o;
	fd = open_regular(l->path_fd, &st);
	if (fd < 0)
		return o;
	o->privileged = (st.st_mode & (S_ISUID | S_ISGID)) ||
			fgetxattr(fd, "security.capability", NULL, 0) > 0;
	pthread_mutex_lock(&b->lock);
	keep_fd(b, o, TAKE_FD(fd));
	pthread_mutex_unlock(&b->lock);
	return o;
}

/* So that the same file is known again without its build-id, and without its time when nobody can look. */
static void set_aliases(struct binaries *b, struct file_identity f, uint64_t key)
{
	if (f.ino == 0)
		return;
	set_alias(b, &f, key);
	if (f.generation) {
		f.generation = 0;
		set_alias(b, &f, key);
	}
}

/* 32-bit processes have another vDSO, below 4 GiB, where no 64-bit process has one. */
static bool is_32bit(const struct sighting *s)
{
	return sizeof(void *) == 8 && s->end <= 1ULL << 32;
}

#define SHARED_MEMORY "[shared memory]"

/* Memory without a file that processes share lies in one of the kernel's, by whose number they have it in common. */
static struct object *see_shared_memory(struct binaries *b, const struct sighting *s)
{
	struct file_identity f = { .dev = s->dev, .ino = s->ino };
	struct object *o = find_identity(b, &f);

	return o ? revive(b, o)
		 : object_new(b, BINARY_ELF, SHARED_MEMORY, strlen(SHARED_MEMORY), &f);
}

struct object *binaries_see(struct binaries *b, const struct sighting *s)
{
	struct file_identity f = { .dev = s->dev, .ino = s->ino };
	_cleanup_(look_done) struct look l = { .path_fd = -1 };
	struct object *o;

	if (s->path_len == 6 && memcmp(s->path, "[vdso]", 6) == 0)
		return object_ref(is_32bit(s) ? b->vdso32 : b->vdso);
	if (is_memory(s))
		return s->shared && s->ino ? see_shared_memory(b, s) : object_ref(b->anon);
	if (s->build_id_len > 0) {
		f.build_id_len = MIN(s->build_id_len, sizeof(f.build_id));
		memcpy(f.build_id, s->build_id, f.build_id_len);
	}
	o = find_object(b, s, &f, &l);
	o = o ? revive(b, o) : make_object(b, s, &f, &l);
	if (!o)
		return NULL;
	set_aliases(b, f, o->key);
	remember_source(b, o, s, &l);
	return o;
}

struct object *binaries_anonymous(struct binaries *b)
{
	return object_ref(b->anon);
}

/* ---- life ------------------------------------------------------------------------------------------------ */

/* The vDSO belongs to the kernel: after a boot into another one it is another binary. */
static uint64_t kernel_generation(void)
{
	struct utsname u = {};

	if (uname(&u) < 0)
		return 0;
	return XXH3_64bits(&u.release, sizeof(u.release)) ^
	       XXH3_64bits(&u.version, sizeof(u.version));
}

int binaries_new(const struct binaries_options *opt, struct binaries **ret)
{
	/* Identities that no file has: device 0. */
	uint64_t kernel = kernel_generation();
	struct file_identity anon = { .ino = 1 }, vdso = { .ino = 2, .generation = kernel },
			     vdso32 = { .ino = 3, .generation = kernel };
	_cleanup_(binaries_free_p) struct binaries *b = new0(struct binaries, 1);

	if (!b)
		return -ENOMEM;
	pthread_mutex_init(&b->lock, NULL);
	TAILQ_INIT(&b->open);
	TAILQ_INIT(&b->idle);
	b->max_fds = opt->max_fds;
	filesystems_init(&b->filesystems);
	b->proc_fd = fcntl(opt->proc_fd, F_DUPFD_CLOEXEC, 3);
	if (b->proc_fd < 0)
		return negative_errno();
	b->opener = opener_ref(opt->opener);
	b->anon = object_new(b, BINARY_ANON, "[anon]", 6, &anon);
	b->vdso = object_new(b, BINARY_VDSO, "[vdso]", 6, &vdso);
	b->vdso32 = object_new(b, BINARY_VDSO, "[vdso32]", 8, &vdso32);
	if (!b->anon || !b->vdso || !b->vdso32)
		return -ENOMEM;
	*ret = TAKE_PTR(b);
	return 0;
}

struct binaries *binaries_free(struct binaries *b)
{
	if (!b)
		return NULL;
	for (size_t i = 1; i < b->n; i++)
		if (b->objects[i])
			object_destroy(b->objects[i]);
	free(b->objects);
	free(b->unused);
	free(b->aliases);
	index_done(&b->by_key);
	index_done(&b->by_build_id);
	index_done(&b->by_file);
	index_done(&b->by_alias);
	filesystems_done(&b->filesystems);
	opener_unref(b->opener);
	close_fd(b->proc_fd);
	pthread_mutex_destroy(&b->lock);
	free(b);
	return NULL;
}

void binaries_stats(struct binaries *b, struct binaries_stats *ret)
{
	pthread_mutex_lock(&b->lock);
	*ret = (struct binaries_stats){
		.objects = b->n_objects,
		.fds = b->n_fds,
		.refused = b->refused,
		.bytes = b->n_objects * sizeof(struct object) + b->path_bytes +
			 b->cap * sizeof(*b->objects) + b->cap_aliases * sizeof(*b->aliases),
	};
	pthread_mutex_unlock(&b->lock);
}
