/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Limits that both ends of the helper's socket keep to. */
#pragma once

#define HELPER_OFFSETS_MAX 256 /* in one request */
#define HELPER_REQUEST_MAX 8192 /* bytes: 256 varints of 10 bytes, and the rest */
#define HELPER_RESPONSE_MAX (1U << 20) /* 256 symbols with two names of 1 KiB each */
#define HELPER_LINES_MAX 33 /* of one place: 32 inlined functions and what they are in */
#define HELPER_LINES_BYTES \
	(HELPER_RESPONSE_MAX / 2) /* of places, in one answer; one has 100 KiB at most */
#define HELPER_PARTS_MAX 8 /* further debug files of one request */
#define HELPER_CPU_SECONDS 10 /* CPU time of one request */
/* The name of data behind all that the file occupies in memory. */
#define HELPER_NOT_OF_FILE "[anon]"
