// SPDX-License-Identifier: GPL-2.0-or-later
#include "fetch/fetcher.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/io.h"
#include "fetch/fetch.h"
#include "helper/child.h"
#include "helper/privileges.h"
#include "sysprofd/v1/fetcher.pb-c.h"

#define DESCRIPTORS_MAX 64
#define CONNECT_MS 10000
#define REDIRECTS_MAX 5
#define URL_MAX 4096

struct download {
	int fd;
	uint64_t bytes, bytes_max;
};

static size_t take(char *data, size_t size, size_t n, void *ctx)
{
	struct download *d = ctx;
	size_t len = size * n;

	if (len > d->bytes_max - d->bytes || write_full(d->fd, data, len) < 0)
		return 0; /* breaks off */
	d->bytes += len;
	return len;
}

static int begin_again(struct download *d)
{
	d->bytes = 0;
	return ftruncate(d->fd, 0) < 0 || lseek(d->fd, 0, SEEK_SET) < 0 ? negative_errno() : 0;
}

static bool set_options(CURL *c, const char *url, struct download *d, uint64_t timeout_ns)
{
	/* A server may send a client elsewhere, but not to its files. */
#if LIBCURL_VERSION_NUM >= 0x075500
	if (curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https") ||
	    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https"))
		return false;
#else
	if (curl_easy_setopt(c, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS) ||
	    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS))
		return false;
#endif
	return !curl_easy_setopt(c, CURLOPT_URL, url) &&
	       !curl_easy_setopt(c, CURLOPT_USERAGENT, "sysprofd/" SYSPROFD_VERSION) &&
	       !curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L) &&
	       !curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L) &&
	       !curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L) &&
	       !curl_easy_setopt(c, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX) &&
	       !curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS) &&
	       !curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)(timeout_ns / NSEC_PER_MSEC)) &&
	       !curl_easy_setopt(c, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)d->bytes_max) &&
	       !curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take) &&
	       !curl_easy_setopt(c, CURLOPT_WRITEDATA, d);
}

static Sysprofd__V1__FetchStatus ask_server(const char *url, struct download *d, uint64_t deadline)
{
	uint64_t now = mono_now_ns();
	CURL *c = now < deadline ? curl_easy_init() : NULL;
	CURLcode r = CURLE_FAILED_INIT;
	long code = 0;

	if (c && begin_again(d) == 0 && set_options(c, url, d, deadline - now))
		r = curl_easy_perform(c);
	if (c)
		curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &code);
	curl_easy_cleanup(c);
	if (r == CURLE_OK && d->bytes > 0)
		return SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FETCHED;
	return r == CURLE_HTTP_RETURNED_ERROR && (code == 404 || code == 410)
		       ? SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_MISSING
		       : SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FAILED;
}

/* Missing only when every server says so. */
static Sysprofd__V1__FetchStatus fetch(const Sysprofd__V1__FetchRequest *q, int fd)
{
	Sysprofd__V1__FetchStatus status = SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_MISSING;
	struct download d = { .fd = fd, .bytes_max = MIN(q->bytes_max, (uint64_t)FETCH_FILE_MAX) };
	uint64_t deadline = mono_now_ns() + q->timeout_ns;

	for (const char *u = q->urls; *u; u += strcspn(u, " ")) {
		Sysprofd__V1__FetchStatus s;
		char url[URL_MAX];
		int len;

		u += strspn(u, " ");
		if (!*u)
			break;
		len = (int)strcspn(u, " ");
		while (len > 0 && u[len - 1] == '/')
			len--;
		if (snprintf(url, sizeof(url), "%.*s/buildid/%s/debuginfo", len, u, q->build_id) >=
		    (int)sizeof(url))
			return SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FAILED;
		s = ask_server(url, &d, deadline);
		if (s == SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FETCHED)
			return s;
		if (s == SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FAILED)
			status = s;
	}
	return status;
}

static int turn(struct channel *c)
{
	Sysprofd__V1__FetchResponse answer = SYSPROFD__V1__FETCH_RESPONSE__INIT;
	const Sysprofd__V1__FetchRequest *q;
	_cleanup_close_ int fd = -1;
	ProtobufCMessage *m = NULL;
	int r;

	r = channel_receive(c, &sysprofd__v1__fetch_request__descriptor, CHANNEL_FOREVER, &m, &fd);
	if (r < 0)
		return r;
	q = (const Sysprofd__V1__FetchRequest *)m;
	answer.id = q->id;
	answer.status = fd < 0 ? SYSPROFD__V1__FETCH_STATUS__FETCH_STATUS_FAILED : fetch(q, fd);
	channel_message_free(c, m);
	return channel_send(c, &answer.base, -1, CHANNEL_FOREVER);
}

static int confine(uint64_t memory)
{
	int r = privileges_limit(RLIMIT_NOFILE, DESCRIPTORS_MAX);

	if (r >= 0)
		r = privileges_limit(RLIMIT_FSIZE, FETCH_FILE_MAX);
	if (r >= 0)
		r = privileges_limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	if (r >= 0)
		r = privileges_limit(RLIMIT_AS, memory);
#endif
	if (r >= 0)
		r = privileges_drop_all();
	if (r >= 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0))
		r = negative_errno();
	return r;
}

int fetcher_main(const char *how)
{
	struct channel channel;
	uint64_t memory;
	int r;

	if (helper_begin(how, "sysprofd-fetch", 65536, &channel, &memory) < 0 ||
	    confine(memory) < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return EXIT_FAILURE;
	/* Too much is told to write(), not by a signal. */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	do
		r = turn(&channel);
	while (r >= 0);
	channel_done(&channel);
	return r == -EPIPE ? EXIT_SUCCESS : EXIT_FAILURE;
}
