// SPDX-License-Identifier: GPL-2.0-or-later
#include "base/clock.h"
#include "helper/exchange.h"

#define EXTENSIONS_MAX 7 /* of a request's time, for a parser that gets no CPU */

void exchange_init(struct exchange *e, uint64_t memory, uint64_t reply_timeout_ns)
{
	e->reply_timeout_ns = reply_timeout_ns;
	helper_process_init(&e->parser, "sysprofd-symbol", "--symbol-helper", memory);
}

void exchange_done(struct exchange *e)
{
	helper_process_done(&e->parser);
	e->active = false;
	e->pid = 0;
}

/* Whatever is under way had its part in it. */
static void failed(struct exchange *e)
{
	if (e->active)
		poison_strike(&e->poison, &e->file);
	e->active = false;
	helper_process_failed(&e->parser);
	e->pid = 0;
}

static int send_before(struct exchange *e, Sysprofd__V1__ParseKind kind, uint64_t *id, int fd,
		       uint64_t deadline)
{
	Sysprofd__V1__ParseRequest m = SYSPROFD__V1__PARSE_REQUEST__INIT;

	m.kind = kind;
	m.offsets = id;
	m.n_offsets = id != NULL;
	return channel_send(&e->parser.channel, &m.base, fd, deadline);
}

static int send_all(struct exchange *e, const Sysprofd__V1__ParseRequest *q,
		    const struct exchange_files *f, uint64_t deadline)
{
	int r = 0;

	if (f->debug >= 0)
		r = send_before(e, SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DEBUG_FILE, NULL, f->debug,
				deadline);
	for (size_t i = 0; r >= 0 && i < f->n_parts; i++) {
		uint64_t id = f->parts[i].id;

		r = send_before(e, SYSPROFD__V1__PARSE_KIND__PARSE_KIND_DEBUG_PART, &id,
				f->parts[i].fd, deadline);
	}
	return r < 0 ? r : channel_send(&e->parser.channel, &q->base, f->file, deadline);
}

int exchange_send(struct exchange *e, const struct identity *file, Sysprofd__V1__ParseRequest *q,
		  const struct exchange_files *files, uint64_t deadline_mono_ns)
{
	int r = -EIO;

	assert(!e->active);
	for (int attempt = 0; attempt < 2; attempt++) {
		r = helper_process_ensure(&e->parser, deadline_mono_ns);
		if (r < 0)
			return r;
		e->pid = e->parser.pid;
		e->sent_mono_ns = mono_now_ns();
		e->extensions = 0;
		helper_process_mark(&e->parser);
		q->id = ++e->last_id;
		r = send_all(e, q, files, e->sent_mono_ns + e->reply_timeout_ns);
		if (r >= 0) {
			e->requests++;
			e->file = *file;
			e->active = true;
			return 0;
		}
		failed(e);
	}
	return r;
}

/*
 * When its time is over but the parser only waited for a CPU, it gets more: on a host that is short of CPU no file is
 * to blame. -ETIME: it hangs.
 */
static int wait_for_answer(struct exchange *e, uint64_t deadline, ProtobufCMessage **ret,
			   int *ret_fd)
{
	for (;;) {
		uint64_t hung = e->sent_mono_ns + e->reply_timeout_ns * (1 + e->extensions);
		int r = channel_receive(&e->parser.channel,
					&sysprofd__v1__parse_response__descriptor,
					MIN(deadline, hung), ret, ret_fd);

		if (r != -ETIMEDOUT || mono_now_ns() < hung)
			return r;
		if (e->extensions == EXTENSIONS_MAX ||
		    !helper_process_starves(&e->parser, e->reply_timeout_ns / 4))
			return -ETIME;
		e->extensions++;
	}
}

int exchange_receive(struct exchange *e, uint64_t deadline_mono_ns,
		     Sysprofd__V1__ParseResponse **ret, int *ret_fd)
{
	ProtobufCMessage *m = NULL;
	_cleanup_close_ int fd = -1;
	int r = wait_for_answer(e, deadline_mono_ns, &m, &fd);

	if (r == -ETIMEDOUT)
		return r;
	if (r >= 0 && ((Sysprofd__V1__ParseResponse *)m)->id != e->last_id)
		r = -EBADMSG;
	if (r >= 0) {
		*ret = (Sysprofd__V1__ParseResponse *)m;
		*ret_fd = TAKE_FD(fd);
		return 0;
	}
	channel_message_free(&e->parser.channel, m);
	if (r == -ETIME)
		e->timeouts++;
	else
		e->crashes++;
	failed(e);
	return -EIO;
}

void exchange_end(struct exchange *e, Sysprofd__V1__ParseResponse *m, int error)
{
	channel_message_free(&e->parser.channel, &m->base);
	if (error < 0 && error != -EREMOTEIO) {
		e->crashes++;
		failed(e);
		return;
	}
	if (error < 0)
		poison_strike(&e->poison, &e->file);
	e->active = false;
	helper_process_answered(&e->parser);
}
