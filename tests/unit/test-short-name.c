// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "export/export.h"
#include "export/short-name.h"

static void assert_short(const char *name, const char *expected)
{
	_cleanup_(strbuf_done) struct strbuf s = {};

	strbuf_puts(&s, "x");
	short_name(name, &s);
	assert_int_equal(strbuf_error(&s), 0);
	assert_string_equal(s.data + 1, expected);
}

static void names(void **state)
{
	static const char *const cases[][2] = {
		{ "main", "main" },
		{ "", "" },
		{ "[truncated]", "[truncated]" },
		{ "do_syscall_64", "do_syscall_64" },
		/* C++ */
		{ "f(int)", "f" },
		{ "f(double, char const*)", "f" },
		{ "ns::Class::method(int) const", "ns::Class::method" },
		{ "ns::Class::method(int)@plt", "ns::Class::method@plt" },
		{ "std::vector<int, std::allocator<int> >::push_back(int const&)",
		  "std::vector::push_back" },
		{ "void sort<int*, Less>(int*, int*, Less)", "sort" },
		{ "std::map<int, std::string>& get<A>(A&)", "get" },
		{ "Foo<int>::~Foo()", "Foo::~Foo" },
		{ "(anonymous namespace)::f(int)", "(anonymous namespace)::f" },
		{ "a::(anonymous namespace)::T<int>::f(int)::g",
		  "a::(anonymous namespace)::T::f::g" },
		{ "main::{lambda(int)#1}::operator()(int) const",
		  "main::{lambda(int)#1}::operator()" },
		{ "f(int)::{lambda()#2}::operator()() const", "f::{lambda()#2}::operator()" },
		{ "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char)",
		  "std::operator<<" },
		{ "bool operator< <int>(A<int> const&, A<int> const&)", "operator<" },
		{ "A::operator->() const", "A::operator->" },
		{ "A::operator[](unsigned long)", "A::operator[]" },
		{ "A::operator<=>(A const&) const", "A::operator<=>" },
		{ "A::operator bool() const", "A::operator bool" },
		{ "A::operator unsigned int() const", "A::operator unsigned int" },
		{ "operator new(unsigned long)", "operator new" },
		{ "operator delete[](void*)", "operator delete[]" },
		{ "non-virtual thunk to A<int>::f(int)", "non-virtual thunk to A::f" },
		{ "std::function<void (int)>::operator()(int) const", "std::function::operator()" },
		{ "void call<&A::operator->>(A)", "call" },
		{ "f(int) [clone .isra.0]", "f" },
		/* Rust */
		{ "core::slice::sort::merge", "core::slice::sort::merge" },
		{ "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
		  "<alloc::vec::Vec as core::clone::Clone>::clone" },
		{ "<str>::trim_start_matches::<&str>", "<str>::trim_start_matches" },
		{ "app::run::<u8>::{closure#0}", "app::run::{closure#0}" },
		{ "core::fmt::num::<impl core::fmt::Debug for u8>::fmt",
		  "core::fmt::num::<impl core::fmt::Debug for u8>::fmt" },
		{ "<fn(i32) -> i32 as core::ops::FnOnce<(i32,)>>::call_once",
		  "<fn(i32) -> i32 as core::ops::FnOnce>::call_once" },
		/* Go, D, code made at run time */
		{ "main.(*T).Spin", "main.(*T).Spin" },
		{ "main.Map[go.shape.int,go.shape.string]", "main.Map" },
		{ "type:.eq.struct { a int }", "type:.eq.struct { a int }" },
		{ "void app.work(int, immutable(char)[])", "app.work" },
		{ "JS:~<anonymous> file.js:3:1", "JS:~<anonymous> file.js:3:1" },
		{ "LazyCompile:*f (node:internal/main) 12",
		  "LazyCompile:*f (node:internal/main) 12" },
		{ "int Spin.f(int)", "Spin.f" },
		{ "java.lang.String.<init>", "java.lang.String.<init>" },
		{ "py::f:/srv/a.py", "py::f:/srv/a.py" },
		/* What is not closed stays. */
		{ "f<int", "f<int" },
		{ "f(int", "f(int" },
		{ "a>b)c]", "a>b)c]" },
		{ "operator", "operator" },
		{ "<", "<" },
		{ "()", "()" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_short(cases[i][0], cases[i][1]);
}

/* Deeper than is looked into, and any bytes: it ends, and is no longer than before. */
static void any_bytes(void **state)
{
	static const char alphabet[] = "<>(){}[]:: operator->ax~.";
	char name[1024];
	unsigned seed = 1;

	memset(name, '<', 512);
	memset(name + 512, '>', 511);
	name[1023] = '\0';
	assert_short(name, name);
	for (int turn = 0; turn < 20000; turn++) {
		_cleanup_(strbuf_done) struct strbuf s = {};
		size_t n = (size_t)(turn % 60);

		for (size_t i = 0; i < n; i++) {
			seed = seed * 1103515245 + 12345;
			name[i] = alphabet[(seed >> 16) % (sizeof(alphabet) - 1)];
		}
		name[n] = '\0';
		short_name(name, &s);
		assert_int_equal(strbuf_error(&s), 0);
		assert_true(s.len <= n);
		assert_int_equal(s.data ? strlen(s.data) : 0, s.len);
	}
}

/* In a flame graph overloads are one; in pprof they are told by their full names. */
static void of_a_profile(void **state)
{
	_cleanup_(dict_free_p) struct dict *d = NULL;
	struct frame f = { .kind = FRAME_NATIVE, .flags = FRAME_NAMED };
	int64_t a, b;

	assert_int_equal(dict_new(&d), 0);
	f.offset = 1;
	f.name = (uint32_t)dict_string(d, "f(int)");
	a = dict_frame(d, &f);
	f.offset = 2;
	f.name = (uint32_t)dict_string(d, "f(char)");
	b = dict_frame(d, &f);
	dict_marker(d, "[other](x)");
	assert_int_equal(short_names(d), 0);
	assert_string_equal(dict_str(d, d->frames[a].name), "f");
	assert_int_equal(d->frames[a].name, d->frames[b].name);
	assert_string_equal(dict_str(d, d->frames[a].system_name), "f(int)");
	assert_string_equal(dict_str(d, d->frames[b].system_name), "f(char)");
	assert_string_equal(dict_str(d, d->frames[3].name), "[other](x)");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names),
		cmocka_unit_test(any_bytes),
		cmocka_unit_test(of_a_profile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
