// SPDX-License-Identifier: GPL-2.0-or-later
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include "manager/loader.h"

struct loader {
	int refs; /* the caller's and the thread's; atomic */
	struct collect_options options;
	struct kernel_places places;
	struct collector *collector;
	char *why;
	int result;
	int fd; /* tells the caller that the three above are there */
};

static void unref(struct loader *l)
{
	if (__atomic_sub_fetch(&l->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	collector_free(l->collector);
	free(l->why);
	close_fd(l->fd);
	free(l);
}

static void *load(void *arg)
{
	struct loader *l = arg;
	uint64_t one = 1;

	pthread_setname_np(pthread_self(), "loader");
	l->result = collector_new(&l->options, &l->collector, &l->why);
	/* A fresh counter is never full. */
	if (write(l->fd, &one, sizeof(one)) < 0)
		assert(false);
	unref(l);
	return NULL;
}

static int start_thread(struct loader *l)
{
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all, old;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	l->refs++;
	r = -pthread_create(&thread, &attr, load, l);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (r < 0)
		l->refs--;
	return r;
}

int loader_start(const struct collect_options *o, struct loader **ret)
{
	struct loader *l = new0(struct loader, 1);
	int r;

	if (!l)
		return -ENOMEM;
	l->refs = 1;
	l->options = *o;
	/* The running one's maps are there, too: to fail is better than to count in less than was asked for. */
	l->options.full_size = true;
	if (o->places) {
		l->places = *o->places;
		l->options.places = &l->places;
	}
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

int loader_take(struct loader *l, struct collector **ret, char **ret_why)
{
	uint64_t n;

	if (read(l->fd, &n, sizeof(n)) < 0)
		return negative_errno();
	if (l->result >= 0)
		*ret = TAKE_PTR(l->collector);
	else
		*ret_why = TAKE_PTR(l->why);
	return l->result;
}

struct loader *loader_free(struct loader *l)
{
	if (l)
		unref(l);
	return NULL;
}
