// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * We accept ourselves, since libmicrohttpd lets clients beyond its limit wait in silence. When all places
 * are taken, the connection that has waited longest for a whole request has to make room, unless it is new;
 * if there is none, the newcomer hears "busy" at once. A peer without privilege has at most half of the
 * places, and all of them together leave an eighth to others. Every connection has an absolute deadline, whatever it trickles.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "serve/internal.h"

#define ACCEPT_BATCH 32 /* per turn of the event loop */
#define SHED_AFTER_NS (100 * NSEC_PER_MSEC)
#define ACCEPT_PAUSE_US (100 * 1000)
#define REFUSALS_MAX 64
#define REFUSAL_LINGER_NS NSEC_PER_SEC
#define DEADLINE_ACCURACY_US 1000

/*
 * Refused clients that may still be sending: closing at once would discard the refusal from a pipe that
 * their request has yet to be written to. They are kept for a moment and what they send is dropped.
 */
struct refusals {
	struct refusal {
		struct refusals *all;
		int fd; /* -1: free */
		sd_event_source *io;
		uint64_t until_mono_ns;
	} items[REFUSALS_MAX];
	sd_event_source *timer;
};

#define BUSY_BODY "{\"code\":\"unavailable\",\"message\":\"busy: no place is free\"}\n"
static const char busy_answer[] = "HTTP/1.1 503 Service Unavailable\r\n"
				  "Content-Type: application/json\r\n"
				  "Content-Length: 58\r\n"
				  "Retry-After: 1\r\n"
				  "Connection: close\r\n"
				  "\r\n" BUSY_BODY;
_Static_assert(sizeof(BUSY_BODY) - 1 == 58, "Content-Length");

/* ---- refusals ---------------------------------------------------------------------------------- */

static void refusal_end(struct refusal *f)
{
	f->io = sd_event_source_disable_unref(f->io);
	f->fd = close_fd(f->fd);
}

static int on_refused_input(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct refusal *f = userdata;
	char buf[4096];
	ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		refusal_end(f);
	return 0;
}

static int on_refusal_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct refusals *all = userdata;
	uint64_t now = mono_now_ns(), next = UINT64_MAX;

	for (size_t i = 0; i < REFUSALS_MAX; i++) {
		struct refusal *f = &all->items[i];

		if (f->fd >= 0 && f->until_mono_ns <= now)
			refusal_end(f);
		if (f->fd >= 0)
			next = MIN(next, f->until_mono_ns);
	}
	if (next == UINT64_MAX)
		return 0;
	sd_event_source_set_time(source, next / NSEC_PER_USEC);
	return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void refusals_free(struct refusals *all)
{
	if (!all)
		return;
	for (size_t i = 0; i < REFUSALS_MAX; i++)
		refusal_end(&all->items[i]);
	sd_event_source_disable_unref(all->timer);
	free(all);
}

static int refusals_new(sd_event *event, struct refusals **ret)
{
	struct refusals *all = new0(struct refusals, 1);
	int r;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < REFUSALS_MAX; i++)
		all->items[i] = (struct refusal){ .all = all, .fd = -1 };
	r = sd_event_add_time(event, &all->timer, CLOCK_MONOTONIC, 0, 0, on_refusal_timer, all);
	if (r >= 0)
		r = sd_event_source_set_enabled(all->timer, SD_EVENT_OFF);
	if (r < 0) {
		refusals_free(all);
		return r;
	}
	*ret = all;
	return 0;
}

/* Takes the descriptor. */
static void refuse(struct server *s, int fd)
{
	struct refusal *f = NULL;

	atomic_fetch_add(&s->stats.refused_busy, 1);
	/* A fresh socket has room for this; a client that cannot take it would not have read it. */
	if (send(fd, busy_answer, sizeof(busy_answer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
		close_fd(fd);
		return;
	}
	shutdown(fd, SHUT_WR);
	for (size_t i = 0; i < REFUSALS_MAX && !f; i++)
		if (s->refusals->items[i].fd < 0)
			f = &s->refusals->items[i];
	if (!f || sd_event_add_io(s->event, &f->io, fd, EPOLLIN, on_refused_input, f) < 0) {
		close_fd(fd);
		return;
	}
	f->fd = fd;
	f->until_mono_ns = mono_now_ns() + REFUSAL_LINGER_NS;
	if (sd_event_source_get_enabled(s->refusals->timer, NULL) == 0) {
		sd_event_source_set_time(s->refusals->timer, f->until_mono_ns / NSEC_PER_USEC);
		sd_event_source_set_enabled(s->refusals->timer, SD_EVENT_ONESHOT);
	}
}

/* ---- connections ------------------------------------------------------------------------------- */

static int on_hangup(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct connection *c = userdata;

	sd_event_source_set_enabled(source, SD_EVENT_OFF);
	if (c->exchange)
		exchange_hangup(c->exchange);
	return 0;
}

static int on_deadline(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct server *s = userdata;
	uint64_t now = mono_now_ns(), next = UINT64_MAX;
	struct connection *after;

	for (struct connection *c = s->connections; c; c = after) {
		after = c->next;
		if (c->deadline_mono_ns <= now) {
			c->deadline_mono_ns = UINT64_MAX;
			if (c->exchange)
				exchange_expired(c->exchange);
			else
				connection_close(c);
		}
		next = MIN(next, c->deadline_mono_ns);
	}
	s->next_deadline_mono_ns = next;
	if (next == UINT64_MAX)
		return 0;
	sd_event_source_set_time(source, next / NSEC_PER_USEC + 1);
	return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

void connection_set_deadline(struct connection *c, uint64_t deadline_mono_ns)
{
	struct server *s = c->server;

	c->deadline_mono_ns = deadline_mono_ns;
	if (deadline_mono_ns >= s->next_deadline_mono_ns)
		return;
	s->next_deadline_mono_ns = deadline_mono_ns;
	sd_event_source_set_time(s->deadline_timer, deadline_mono_ns / NSEC_PER_USEC + 1);
	sd_event_source_set_enabled(s->deadline_timer, SD_EVENT_ONESHOT);
}

void connection_wait(struct connection *c)
{
	c->waiting_since_mono_ns = mono_now_ns();
	connection_set_deadline(c, c->waiting_since_mono_ns + c->server->o.request_timeout_ns);
}

void connection_watch(struct connection *c, bool on)
{
	/* Without EPOLLIN and EPOLLRDHUP: a client may close its sending half and wait for the answer. */
	if (on && !c->hangup &&
	    sd_event_add_io(c->server->event, &c->hangup, c->fd, EPOLLHUP, on_hangup, c) < 0)
		return;
	if (c->hangup)
		sd_event_source_set_enabled(c->hangup, on ? SD_EVENT_ON : SD_EVENT_OFF);
}

static void uncount(struct connection *c)
{
	if (c->shed)
		return;
	c->shed = true;
	c->server->n_connections--;
	atomic_fetch_sub(&c->server->stats.connections, 1);
}

void connection_close(struct connection *c)
{
	uncount(c);
	shutdown(c->fd, SHUT_RDWR);
	http_kick(c->server);
}

void connection_free(struct connection *c)
{
	struct server *s = c->server;

	uncount(c);
	sd_event_source_disable_unref(c->hangup);
	if (c->prev)
		c->prev->next = c->next;
	else
		s->connections = c->next;
	if (c->next)
		c->next->prev = c->prev;
	peer_unref(c->peer);
	free(c);
}

struct connection *connection_find(struct server *s, int fd)
{
	for (struct connection *c = s->connections; c; c = c->next)
		if (c->fd == fd && !c->started)
			return c;
	return NULL;
}

/* ---- accepting --------------------------------------------------------------------------------- */

/* The connection that has waited longest for its request, among those of peers without privilege or all. */
static struct connection *find_idle(struct server *s, bool plain, const uid_t *uid)
{
	struct connection *best = NULL;
	uint64_t limit = mono_now_ns() - SHED_AFTER_NS;

	for (struct connection *c = s->connections; c; c = c->next) {
		if (c->shed || !c->waiting_since_mono_ns || c->waiting_since_mono_ns > limit)
			continue;
		if ((plain && c->peer->visibility.all) || (uid && c->peer->uid != *uid))
			continue;
		if (!best || c->waiting_since_mono_ns < best->waiting_since_mono_ns)
			best = c;
	}
	return best;
}

/* Finds a place for the peer, taking one from an idle connection if it must. */
static bool make_room(struct server *s, const struct peer *p)
{
	size_t mine = 0, plain = 0, max = s->o.max_connections;
	bool full = s->n_connections >= max, greedy = false;
	struct connection *idle;

	for (struct connection *c = s->connections; c; c = c->next) {
		mine += !c->shed && c->peer->uid == p->uid;
		plain += !c->shed && !c->peer->visibility.all;
	}
	if (!p->visibility.all) {
		greedy = mine >= MAX(max / 2, 1U);
		full |= greedy || plain >= max - max / 8;
	}
	if (!full)
		return true;
	idle = find_idle(s, !p->visibility.all, greedy ? &p->uid : NULL);
	if (!idle)
		return false;
	connection_close(idle);
	return true;
}

static bool is_listed(const struct server *s, const struct connection *c)
{
	for (const struct connection *i = s->connections; i; i = i->next)
		if (i == c)
			return true;
	return false;
}

static int connection_add(struct server *s, int fd, struct peer *peer)
{
	struct connection *c = new0(struct connection, 1);

	if (!c)
		return -ENOMEM;
	c->server = s;
	c->fd = fd;
	c->peer = peer_ref(peer);
	c->deadline_mono_ns = UINT64_MAX;
	c->next = s->connections;
	if (c->next)
		c->next->prev = c;
	s->connections = c;
	s->n_connections++;
	atomic_fetch_add(&s->stats.connections, 1);
	/* From here on the descriptor is libmicrohttpd's, whatever it answers. */
	if (MHD_add_connection(s->mhd, fd, NULL, 0) != MHD_YES) {
		/* It may have reported the connection closed, or never have begun with it. */
		if (is_listed(s, c))
			connection_free(c);
		return 0;
	}
	connection_wait(c);
	http_kick(s);
	return 0;
}

static void take_client(struct server *s, int fd)
{
	_cleanup_(peer_unref_p) struct peer *peer = NULL;

	atomic_fetch_add(&s->stats.accepted, 1);
	/* A peer that cannot be known, as it is gone already, gets nothing. */
	if (peer_new(&s->policy, fd, &peer) < 0) {
		close_fd(fd);
		return;
	}
	if (!make_room(s, peer) || connection_add(s, fd, peer) < 0)
		refuse(s, fd);
}

/* Out of descriptors: the one in reserve lets the next client hear it instead of hanging. */
static void shed_without_descriptor(struct server *s)
{
	int fd;

	s->reserve_fd = close_fd(s->reserve_fd);
	log_write_limited(&s->log_accept, LOG_LEVEL_WARNING,
			  "socket: no descriptors left, clients are refused");
	fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0) {
		atomic_fetch_add(&s->stats.refused_busy, 1);
		if (send(fd, busy_answer, sizeof(busy_answer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			log_debug("socket: a client left before it was refused");
		close_fd(fd);
	}
	s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static int on_accept_resume(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct server *s = userdata;

	return sd_event_source_set_enabled(s->accept_io, SD_EVENT_ON);
}

/* An error that does not go away by itself must not spin the loop. */
static int pause_accepting(struct server *s)
{
	uint64_t now;
	int r = sd_event_now(s->event, CLOCK_MONOTONIC, &now);

	if (r < 0)
		return r;
	sd_event_source_set_enabled(s->accept_io, SD_EVENT_OFF);
	sd_event_source_set_time(s->accept_pause, now + ACCEPT_PAUSE_US);
	return sd_event_source_set_enabled(s->accept_pause, SD_EVENT_ONESHOT);
}

static int on_accept(sd_event_source *source, int listen_fd, uint32_t revents, void *userdata)
{
	struct server *s = userdata;

	for (int i = 0; i < ACCEPT_BATCH; i++) {
		int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			take_client(s, fd);
			continue;
		}
		switch (errno) {
		case EAGAIN:
			return 0;
		case EINTR:
		case ECONNABORTED:
			continue;
		case EMFILE:
		case ENFILE:
			shed_without_descriptor(s);
			if (s->reserve_fd < 0)
				return pause_accepting(s);
			continue;
		default:
			log_write_limited(&s->log_accept, LOG_LEVEL_WARNING, "socket: accept: %s",
					  strerrordesc_np(errno) ?: "unknown error");
			return pause_accepting(s);
		}
	}
	return 0;
}

/* ---- the listening socket ------------------------------------------------------------------------ */

/* Removes a socket that nobody listens on. Anything else stays, and is an error. */
static int remove_stale(const struct sockaddr_un *a)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (lstat(a->sun_path, &st) < 0)
		return errno == ENOENT ? 0 : negative_errno();
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return negative_errno();
	if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0 || errno == EAGAIN)
		return -EADDRINUSE;
	if (errno != ECONNREFUSED)
		return negative_errno();
	return unlink(a->sun_path) < 0 && errno != ENOENT ? negative_errno() : 0;
}

static int bind_path(struct server *s)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = s->o.socket_path;
	struct stat st;
	int r;

	if (str_empty(path) || strlen(path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	memcpy(a.sun_path, path, strlen(path) + 1);
	r = remove_stale(&a);
	if (r < 0)
		return r;
	s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->listen_fd < 0)
		return negative_errno();
	if (bind(s->listen_fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
		return negative_errno();
	if (lstat(path, &st) < 0)
		return negative_errno();
	s->bound_ino = st.st_ino;
	/* Open to all: what a peer may see is decided by who it is. Nobody can connect before listen(). */
	if (chmod(path, 0666) < 0)
		return negative_errno();
	return listen(s->listen_fd, SOMAXCONN) < 0 ? negative_errno() : 0;
}

static int adopt_descriptor(struct server *s)
{
	int flags;

	if (sd_is_socket_unix(s->o.listen_fd, SOCK_STREAM, 1, NULL, 0) <= 0)
		return -EPROTOTYPE;
	s->listen_fd = s->o.listen_fd;
	flags = fcntl(s->listen_fd, F_GETFL);
	if (flags < 0 || fcntl(s->listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return negative_errno();
	return 0;
}

int listener_open(struct server *s)
{
	int r = s->o.listen_fd >= 0 ? adopt_descriptor(s) : bind_path(s);

	if (r < 0)
		return r;
	s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	r = refusals_new(s->event, &s->refusals);
	if (r < 0)
		return r;
	s->next_deadline_mono_ns = UINT64_MAX;
	r = sd_event_add_time(s->event, &s->deadline_timer, CLOCK_MONOTONIC, 0,
			      DEADLINE_ACCURACY_US, on_deadline, s);
	if (r >= 0)
		r = sd_event_source_set_enabled(s->deadline_timer, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_time(s->event, &s->accept_pause, CLOCK_MONOTONIC, 0, 0,
				      on_accept_resume, s);
	if (r >= 0)
		r = sd_event_source_set_enabled(s->accept_pause, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_io(s->event, &s->accept_io, s->listen_fd, EPOLLIN, on_accept, s);
	return r < 0 ? r : 0;
}

void listener_close(struct server *s)
{
	struct stat st;

	s->accept_io = sd_event_source_disable_unref(s->accept_io);
	s->accept_pause = sd_event_source_disable_unref(s->accept_pause);
	s->deadline_timer = sd_event_source_disable_unref(s->deadline_timer);
	refusals_free(s->refusals);
	s->refusals = NULL;
	/* Somebody may have removed it, and started another server there. */
	if (s->bound_ino && lstat(s->o.socket_path, &st) == 0 && st.st_ino == s->bound_ino)
		unlink(s->o.socket_path);
	s->bound_ino = 0;
	/* A descriptor from the service manager is its to close. */
	if (s->listen_fd != s->o.listen_fd)
		close_fd(s->listen_fd);
	s->listen_fd = -1;
	s->reserve_fd = close_fd(s->reserve_fd);
}
