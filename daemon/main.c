// SPDX-License-Identifier: GPL-2.0-or-later
/* sysprofd: a flight recorder for performance. */
#include <getopt.h>
#include <stdio.h>

#include "base/heap.h"
#include "base/io.h"
#include "collect/opener-process.h"
#include "fetch/fetcher.h"
#include "manager/config.h"
#include "manager/manager.h"
#include "parser/parser.h"

#define EXIT_USAGE 2
#define EXIT_CONFIG 78 /* EX_CONFIG of sysexits.h */

static const char usage[] =
	"Usage: sysprofd [OPTION]...\n"
	"Records what this host does, in the foreground, until SIGTERM.\n"
	"\n"
	"  --config FILE            read this instead of /etc/sysprofd/sysprofd.conf\n"
	"  --state-directory DIR    keep history here (created)\n"
	"  --socket PATH            listen here\n"
	"  --check-config           check the configuration and exit: 0, or 78 with the problems\n"
	"  --print-config           print the configuration file with all settings and defaults\n"
	"  --version                print the version\n"
	"  --help                   print this\n"
	"\n"
	"SIGHUP reloads the configuration. Ask with sysprofctl(1).\n";

enum {
	OPT_CONFIG = 256,
	OPT_STATE,
	OPT_SOCKET,
	OPT_CHECK,
	OPT_PRINT,
	OPT_VERSION,
	OPT_HELP,
	OPT_HELPER,
	OPT_OPENER,
	OPT_FETCHER
};

static const struct option options[] = {
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "state-directory", required_argument, NULL, OPT_STATE },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "check-config", no_argument, NULL, OPT_CHECK },
	{ "print-config", no_argument, NULL, OPT_PRINT },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "symbol-helper", required_argument, NULL, OPT_HELPER }, /* the daemon starts itself */
	{ "opener", required_argument, NULL, OPT_OPENER }, /* likewise */
	{ "fetcher", required_argument, NULL, OPT_FETCHER }, /* likewise */
	{},
};

static int run(const struct manager_options *o)
{
	_cleanup_(manager_free_p) struct manager *m = NULL;

	heap_keep_some();
	if (manager_new(o, &m) < 0)
		return EXIT_FAILURE;
	return manager_run(m) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int check(const struct manager_options *o)
{
	int n = manager_check_config(o);

	if (n < 0)
		fprintf(stderr, "sysprofd: %s\n", strerror(-n));
	return n == 0 ? EXIT_SUCCESS : EXIT_CONFIG;
}

int main(int argc, char **argv)
{
	struct manager_options o = { .config_path = "/etc/sysprofd/sysprofd.conf" };
	bool check_only = false;
	int opt;

	if (stdio_occupy() < 0)
		return EXIT_FAILURE;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0)
		switch (opt) {
		case OPT_CONFIG:
			o.config_path = optarg;
			o.config_required = true;
			break;
		case OPT_STATE:
			o.state_directory = optarg;
			break;
		case OPT_SOCKET:
			o.socket = optarg;
			break;
		case OPT_CHECK:
			check_only = true;
			break;
		case OPT_PRINT:
			return config_print_sample(stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
		case OPT_VERSION:
			puts("sysprofd " SYSPROFD_VERSION);
			return EXIT_SUCCESS;
		case OPT_HELP:
			fputs(usage, stdout);
			return EXIT_SUCCESS;
		case OPT_HELPER:
			return parser_main(optarg);
		case OPT_OPENER:
			return opener_main(optarg);
		case OPT_FETCHER:
			return fetcher_main(optarg);
		default:
			fputs("Try sysprofd --help.\n", stderr);
			return EXIT_USAGE;
		}
	if (optind < argc) {
		fprintf(stderr, "sysprofd: unexpected argument %s. Try sysprofd --help.\n",
			argv[optind]);
		return EXIT_USAGE;
	}
	return check_only ? check(&o) : run(&o);
}
