// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "serve/json.h"
#include "serve/rpc.h"

static const struct {
	const char *name;
	unsigned http;
} codes[RPC_CODE_N] = {
	[RPC_OK] = { "ok", 200 },
	[RPC_CANCELED] = { "canceled", 499 },
	[RPC_UNKNOWN] = { "unknown", 500 },
	[RPC_INVALID_ARGUMENT] = { "invalid_argument", 400 },
	[RPC_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
	[RPC_NOT_FOUND] = { "not_found", 404 },
	[RPC_ALREADY_EXISTS] = { "already_exists", 409 },
	[RPC_PERMISSION_DENIED] = { "permission_denied", 403 },
	[RPC_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
	[RPC_FAILED_PRECONDITION] = { "failed_precondition", 400 },
	[RPC_ABORTED] = { "aborted", 409 },
	[RPC_OUT_OF_RANGE] = { "out_of_range", 400 },
	[RPC_UNIMPLEMENTED] = { "unimplemented", 501 },
	[RPC_INTERNAL] = { "internal", 500 },
	[RPC_UNAVAILABLE] = { "unavailable", 503 },
	[RPC_DATA_LOSS] = { "data_loss", 500 },
	[RPC_UNAUTHENTICATED] = { "unauthenticated", 401 },
};

const char *rpc_code_name(enum rpc_code code)
{
	return codes[code].name;
}

unsigned rpc_code_http(enum rpc_code code)
{
	return codes[code].http;
}

void rpc_set_error(struct rpc_error *e, enum rpc_code code, const char *fmt, ...)
{
	char text[RPC_MESSAGE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	e->code = code;
	/* Messages quote the request, and are cut anywhere. */
	utf8_sanitize(e->message, sizeof(e->message), text, strlen(text));
}

void rpc_fail_errno(struct rpc_error *e, int r, const char *what)
{
	enum rpc_code code;

	if (e->code != RPC_OK)
		return;
	switch (r) {
	case -ECANCELED:
		code = RPC_CANCELED;
		break;
	case -EINVAL:
		code = RPC_INVALID_ARGUMENT;
		break;
	case -EFBIG:
	case -E2BIG:
	case -ENOMEM:
	case -ENOSPC:
		code = RPC_RESOURCE_EXHAUSTED;
		break;
	case -EBUSY:
	case -ETIME:
	case -ETIMEDOUT:
		code = RPC_UNAVAILABLE;
		break;
	case -EPERM:
	case -EACCES:
		code = RPC_PERMISSION_DENIED;
		break;
	case -EOPNOTSUPP:
		code = RPC_UNIMPLEMENTED;
		break;
	default:
		code = RPC_INTERNAL;
	}
	rpc_set_error(e, code, "%s: %s", what, strerrordesc_np(-r) ?: "unknown error");
}

void rpc_error_json(const struct rpc_error *e, struct strbuf *out)
{
	strbuf_printf(out, "{\"code\":\"%s\"", rpc_code_name(e->code));
	if (e->message[0]) {
		strbuf_puts(out, ",\"message\":");
		json_write_string(e->message, strlen(e->message), out);
	}
	strbuf_putc(out, '}');
}
