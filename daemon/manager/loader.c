// SPDX-License-Identifier: GPL-2.0-or-later
#include <sys/eventfd.h>

#include "base/thread.h"
#include "manager/loader.h"

struct loader {
	int refs; /* the caller's and the thread's; atomic */
	bool collects;
	struct collect_options options;
	struct kernel_places places;
	struct loaded loaded;
	char *why;
	int result;
	int fd; /* tells the caller that the three above are there */
};

void loaded_done(struct loaded *l)
{
	config_free(l->config);
	collector_free(l->collector);
	access_policy_free(l->access);
	*l = (struct loaded){};
}

static void unref(struct loader *l)
{
	if (__atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	loaded_done(&l->loaded);
	free(l->why);
	close_fd(l->fd);
	free(l);
}

static int make(struct loader *l)
{
	struct loaded *made = &l->loaded;
	const struct config *c = made->config;
	int r = access_policy_new(c->group, c->rules, c->n_rules, &made->access);

	if (r < 0 || !l->collects)
		return r;
	return collector_new(&l->options, &made->collector, &l->why);
}

static void *load(void *arg)
{
	struct loader *l = arg;
	uint64_t one = 1;

	pthread_setname_np(pthread_self(), "loader");
	l->result = make(l);
	/* A fresh counter is never full. */
	if (write(l->fd, &one, sizeof(one)) < 0)
		assert(false);
	unref(l);
	return NULL;
}

static int start_thread(struct loader *l)
{
	int r;

	l->refs++;
	r = thread_start(NULL, load, l);
	if (r < 0)
		l->refs--;
	return r;
}

static void set_options(struct loader *l, const struct collect_options *o)
{
	l->collects = true;
	l->options = *o;
	/* The running one's maps are there, too: to fail is better than to count in less than was asked for. */
	l->options.full_size = true;
	if (o->places) {
		l->places = *o->places;
		l->options.places = &l->places;
	}
}

int loader_start(struct config *c, const struct collect_options *o, struct loader **ret)
{
	struct loader *l = new0(struct loader, 1);
	int r;

	if (!l) {
		config_free(c);
		return -ENOMEM;
	}
	l->refs = 1;
	l->loaded.config = c;
	if (o)
		set_options(l, o);
	l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = l->fd < 0 ? negative_errno() : start_thread(l);
	if (r < 0) {
		unref(l);
		return r;
	}
	*ret = l;
	return 0;
}

int loader_fd(const struct loader *l)
{
	return l->fd;
}

int loader_take(struct loader *l, struct loaded *ret, char **ret_why)
{
	uint64_t n;

	if (read(l->fd, &n, sizeof(n)) < 0)
		return negative_errno();
	if (l->result < 0) {
		*ret_why = TAKE_PTR(l->why);
		return l->result;
	}
	*ret = l->loaded;
	l->loaded = (struct loaded){};
	return 0;
}

struct loader *loader_free(struct loader *l)
{
	if (l)
		unref(l);
	return NULL;
}
