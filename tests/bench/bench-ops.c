// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What operations cost now, with whatever is attached: the median of many short blocks, so that those in which
 * neighbours were in the way do not count. bench-ops CPU prints "call NS", "pipe NS" and "futex NS".
 */
#include "ops.h"

#define BLOCKS 15
#define BLOCK_NS 15e6
#define FIRST_COUNT 500

int main(int argc, char **argv)
{
	struct ops o;

	ops_init(&o, argc > 1 ? atoi(argv[1]) : 0);
	for (enum op op = OP_CALL; op <= OP_FUTEX; op++) {
		size_t n = (size_t)(BLOCK_NS / ops_block(&o, op, FIRST_COUNT)) + 1;
		double ns[BLOCKS];

		for (size_t i = 0; i < BLOCKS; i++)
			ns[i] = ops_block(&o, op, n);
		qsort(ns, BLOCKS, sizeof(*ns), by_value);
		printf("%s %.2f\n", op_names[op], ns[BLOCKS / 2]);
	}
	return 0;
}
