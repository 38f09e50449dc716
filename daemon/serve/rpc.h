/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Error codes of Connect, which are gRPC's, and what HTTP calls them. */
#pragma once

#include "base/strbuf.h"

enum rpc_code {
	RPC_OK = 0,
	RPC_CANCELED,
	RPC_UNKNOWN,
	RPC_INVALID_ARGUMENT,
	RPC_DEADLINE_EXCEEDED,
	RPC_NOT_FOUND,
	RPC_ALREADY_EXISTS,
	RPC_PERMISSION_DENIED,
	RPC_RESOURCE_EXHAUSTED,
	RPC_FAILED_PRECONDITION,
	RPC_ABORTED,
	RPC_OUT_OF_RANGE,
	RPC_UNIMPLEMENTED,
	RPC_INTERNAL,
	RPC_UNAVAILABLE,
	RPC_DATA_LOSS,
	RPC_UNAUTHENTICATED,
	RPC_CODE_N
};

#define RPC_MESSAGE_MAX 240

struct rpc_error {
	enum rpc_code code;
	char message[RPC_MESSAGE_MAX];
};

const char *rpc_code_name(enum rpc_code code);
unsigned rpc_code_http(enum rpc_code code);

void rpc_set_error(struct rpc_error *e, enum rpc_code code, const char *fmt, ...) _printf_(3, 4);
/* Says what went wrong, for `return rpc_fail(...)`. A macro, so that compilers know the result. */
#define rpc_fail(e, code, ...) (rpc_set_error(e, code, __VA_ARGS__), -EPROTO)
/* A negative errno that nobody explained; does nothing when somebody did. */
void rpc_fail_errno(struct rpc_error *e, int r, const char *what);

/* {"code":"...","message":"..."} */
void rpc_error_json(const struct rpc_error *e, struct strbuf *out);
