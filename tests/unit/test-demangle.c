// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>

#include "base/utf8.h"
#include "symbol/demangle.h"

static void readable_names(void **state)
{
	static const struct {
		const char *system_name, *name;
	} cases[] = {
		{ "main", "main" },
		{ "", "" },
		{ "hotc.cold", "hotc" },
		{ "hotc.cold.12", "hotc" },
		{ "work.isra.0.part.3.cold", "work" },
		{ "f.constprop.0", "f" },
		{ "f.lto_priv.4", "f" },
		{ "f.llvm.1234567890abcdef", "f" },
		{ "memcpy.resolver", "memcpy.resolver" },
		{ "callee@plt", "callee@plt" },
		{ "_ZN2ns5Class6methodEi@plt", "ns::Class::method(int)@plt" },
		{ "@plt", "@plt" },
		{ "memcpy@@GLIBC_2.14", "memcpy" },
		{ "nested.1234", "nested.1234" }, /* gcc's nested functions are functions */
		{ "cold", "cold" },
		{ ".cold", ".cold" },
		{ "x.colder", "x.colder" },
		{ "x.part.", "x.part." },
		/* Go */
		{ "main.(*T).Spin", "main.(*T).Spin" },
		{ "main.work.func1", "main.work.func1" },
		{ "runtime.memmove.abi0", "runtime.memmove" },
		{ "slices.clone", "slices.clone" },
		{ "main.Map[go.shape.int,go.shape.string]",
		  "main.Map[go.shape.int,go.shape.string]" },
		/* C++ */
		{ "_ZN2ns5Class6methodEi", "ns::Class::method(int)" },
		{ "_ZN2ns5Class6methodEi.cold", "ns::Class::method(int)" },
		{ "_ZN12_GLOBAL__N_14workEv", "(anonymous namespace)::work()" },
		{ "_ZSt4sortIPiEvT_S1_", "void std::sort<int*>(int*, int*)" },
		/* Rust, both manglings; the hash of the old one changes with every build */
		{ "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad" },
		{ "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
		  "3bar17h930b740aa94f1d3aE",
		  "<Test + 'static as foo::Bar<Test>>::bar" },
		{ "_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function" },
		{ "_RNvXs5_NtCsd4VYFwevHkG_4core3fmtRDNtB5_5DebugEL_B5_3fmt", NULL },
		/* D */
		{ "_Dmain", "D main" },
		{ "_D8demangle4testFaZv", "demangle.test(char)" },
		{ "_D3std5stdio4File5closeMFNeZv", "std.stdio.File.close()" },
		{ "_D8demangle13__T4testTaTiZ4testFaiZv",
		  "demangle.test!(char, int).test(char, int)" },
		{ "_D3foo3barFAyaQdZv.cold", "foo.bar(immutable(char)[], immutable(char)[])" },
		{ "_D3foo3bar", "_D3foo3bar" },
		{ "_D", "_D" },
		{ "_DYNAMIC", "_DYNAMIC" },
		/* Not mangled, or mangled wrongly */
		{ "_Z", "_Z" },
		{ "_ZN", "_ZN" },
		{ "_R", "_R" },
		{ "_Z3fo", "_Z3fo" },
		{ "_Zzz_is_mine", "_Zzz_is_mine" },
		/* Bytes of any kind */
		{ "a\nb\x1b[31m\xff", "a?b?[31m\xef\xbf\xbd" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char name[SYMBOL_NAME_MAX];

		symbol_readable_name(cases[i].system_name, name);
		assert_true(utf8_valid(name, strlen(name)));
		if (cases[i].name)
			assert_string_equal(name, cases[i].name);
	}
}

static void output_is_bounded(void **state)
{
	char mangled[8192], name[SYMBOL_NAME_MAX];
	size_t n;

	/* Parameters A<int, int>, B<A, A>, C<B, B>, ... double what is printed with each: 2^26 in the end. */
	n = (size_t)sprintf(mangled, "_Z1f1AIiiE");
	for (int i = 1; i < 26; i++) {
		int earlier = 2 * i -
			      1; /* S_ is A, S0_ A<int, int>, S1_ B, S2_ B<A, A>, ... in base 36 */
		char seq[4] = {};

		earlier--;
		if (earlier >= 36)
			seq[0] = (char)('0' + earlier / 36);
		seq[strlen(seq)] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[earlier % 36];
		n += (size_t)sprintf(mangled + n, "1%cIS%s_S%s_E", 'A' + i, seq, seq);
	}
	symbol_readable_name(mangled, name);
	assert_int_equal(strncmp(name, "f(A<int, int>, B<A<int, int>, A<int, int> >, C<B<A", 50),
			 0);
	assert_string_equal(name + strlen(name) - 3, "...");

	/* Longer than any name: taken as it is, cut. */
	memset(mangled, 'a', sizeof(mangled) - 1);
	mangled[sizeof(mangled) - 1] = '\0';
	symbol_readable_name(mangled, name);
	assert_int_equal(strlen(name), SYMBOL_NAME_MAX - 1);
	assert_string_equal(name + SYMBOL_NAME_MAX - 4, "...");

	memcpy(mangled, "_ZN", 3);
	symbol_readable_name(mangled, name);
	assert_int_equal(strncmp(name, "_ZNaaa", 6), 0);

	/* A valid one whose readable form is too long. */
	n = (size_t)sprintf(mangled, "_ZN");
	for (int i = 0; i < 200; i++)
		n += (size_t)sprintf(mangled + n, "9abcdefghi");
	sprintf(mangled + n, "1fEv");
	symbol_readable_name(mangled, name);
	assert_int_equal(strncmp(name, "abcdefghi::abcdefghi::", 22), 0);
	assert_string_equal(name + strlen(name) - 3, "...");

	/* D: a reference back to the first parameter, 12 and 13 times. */
	for (int references = 12; references <= 13; references++) {
		n = (size_t)sprintf(mangled, "_D1f1fFi");
		for (int i = 0; i < references; i++)
			n += (size_t)sprintf(mangled + n, "Q%c", 'b' + 2 * i);
		sprintf(mangled + n, "Zv");
		symbol_readable_name(mangled, name);
		assert_int_equal(strncmp(name, references == 12 ? "f.f(int, int, " : mangled, 14),
				 0);
	}
	/* Each level refers twice to the one before. */
	n = (size_t)sprintf(mangled, "_D1f1fFHii");
	for (int i = 0; i < 6; i++)
		n += (size_t)sprintf(mangled + n, "HQ%cQ%c", i ? 'g' : 'e', i ? 'i' : 'g');
	sprintf(mangled + n, "Zv");
	symbol_readable_name(mangled, name);
	assert_int_equal(strncmp(name, "f.f(int[int], int[int][int[int]], ", 34), 0);

	/* Deep nesting must not run out of stack. */
	n = (size_t)sprintf(mangled, "_Z1f");
	memset(mangled + n, 'P', 4000);
	sprintf(mangled + n + 4000, "i");
	symbol_readable_name(mangled, name);
	n = (size_t)sprintf(mangled, "_RNvC1c1f");
	memset(mangled + 2, 'I', 4000);
	symbol_readable_name(mangled, name);
	n = (size_t)sprintf(mangled, "_D1f1fF");
	memset(mangled + n, 'P', 1000);
	sprintf(mangled + n + 1000, "iZv");
	symbol_readable_name(mangled, name);
}

/* Random bytes behind the prefixes that the demanglers look at. */
/* All names of a Rust program, its standard library included, against binutils: no crash, no hang, and the same. */
static void rust_programs(void **state)
{
	/* Older ones make the legacy form unless they are told. */
	static const char *const manglings[] = { "", "-Csymbol-mangling-version=v0" };
	char command[1024], line[16384];

	for (size_t i = 0; i < ARRAY_SIZE(manglings); i++) {
		int n = 0, same = 0;
		FILE *f;

		/* c++filt tells besides which crate of that name it is, which instance, and a constant's type. */
		snprintf(command, sizeof(command),
			 "d=$(mktemp -d) && cd $d && printf 'use std::collections::BTreeMap; fn "
			 "main() { "
			 "let m: BTreeMap<String, Vec<u8>> = BTreeMap::new(); println!(\"{:?}\", "
			 "m); }' >a.rs && "
			 "rustc -O %s -o a a.rs 2>/dev/null && nm a | "
			 "sed -nE 's/^[0-9a-f]+ [tT] (_R.*|_ZN.*17h[0-9a-f]{16}E)$/\\1/p' | sort "
			 "-u >n && "
			 "c++filt -n <n | sed -E 's/([A-Za-z0-9_])\\[[0-9a-f]{1,16}\\]/\\1/g; "
			 "s/::h[0-9a-f]{16}$//; s/([0-9]): usize>/\\1>/g' | "
			 "paste -d '\t' n - ; rm -rf $d",
			 manglings[i]);
		f = popen(command, "r");
		assert_non_null(f);
		while (fgets(line, sizeof(line), f)) {
			char name[SYMBOL_NAME_MAX], *tab = strchr(line, '\t');

			assert_non_null(tab);
			*tab++ = '\0';
			tab[strcspn(tab, "\n")] = '\0';
			symbol_readable_name(line, name);
			n++;
			/* Long ones are cut. */
			if (strlen(tab) >= SYMBOL_NAME_MAX) {
				assert_int_equal(strlen(name), SYMBOL_NAME_MAX - 1);
				tab[SYMBOL_NAME_MAX - 4] = name[SYMBOL_NAME_MAX - 4] = '\0';
			}
			if (streq(name, tab))
				same++;
			else
				print_message("%s: %s, c++filt: %s\n", line, name, tab);
		}
		pclose(f);
		if (!n)
			print_message("left out: rustc %s\n", manglings[i]);
		else
			assert_int_equal(same, n);
	}
}

static void random_input(void **state)
{
	static const char alphabet[] = "NSTIEKRCvXiPsh_0123456789abcdefghLDFyGQZ.$";
	static const char *const prefixes[] = { "_Z", "_ZN", "_R", "_RNv", "_RI", "_D3" };
	char mangled[256], name[SYMBOL_NAME_MAX];
	uint64_t seed = 88172645463325252ULL;

	for (int round = 0; round < 200000; round++) {
		size_t n = (size_t)sprintf(mangled, "%s", prefixes[round % 6]), len;

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		for (len = n + seed % 60; n < len; n++) {
			seed ^= seed << 13;
			seed ^= seed >> 7;
			seed ^= seed << 17;
			mangled[n] = alphabet[seed % (sizeof(alphabet) - 1)];
		}
		mangled[n] = '\0';
		symbol_readable_name(mangled, name);
		assert_true(utf8_valid(name, strlen(name)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readable_names),
		cmocka_unit_test(output_is_bounded),
		cmocka_unit_test(rust_programs),
		cmocka_unit_test(random_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
