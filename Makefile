# sysprofd: `make help` lists the targets.
# One non-recursive Makefile; everything that is made lies under $(B). V=1 shows the commands.

B ?= build
PREFIX ?= /usr
DESTDIR ?=
UNITDIR ?= $(PREFIX)/lib/systemd/system
SAN ?=
# Another machine: CROSS=aarch64-linux-gnu- SYSROOT=dir, with Debian's packages for it unpacked in dir.
CROSS ?=
SYSROOT ?=
CC = $(CROSS)gcc $(SYSROOT:%=--sysroot=%)
CLANG ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool /usr/bin/bpftool) bpftool)
PKG_CONFIG ?= $(if $(SYSROOT),PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/$(CROSS:%-=%)/pkgconfig) pkg-config
VERSION := 0.1.0
ARCH := $(or $(firstword $(subst -, ,$(CROSS))),$(shell uname -m))
BPF_ARCH := $(patsubst x86_64,x86,$(patsubst aarch64,arm64,$(ARCH)))

V ?= 0
ifeq ($(V),0)
Q := @
say = @printf '  %-8s %s\n' '$(1)' '$(patsubst $(B)/%,%,$@)'
endif

PACKAGES := libbpf libsystemd libprotobuf-c libmicrohttpd sqlite3 libzstd libxxhash libelf libdw liblzma zlib libcurl
WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings \
	-Wno-unused-parameter -Wno-missing-field-initializers -Wno-sign-compare
CFLAGS ?= -O2 -g
# The compiler may be asked for the installed packages only when something is to be compiled.
ifneq ($(filter-out deps run check check-kernels bench bench-stacks help clean format,$(or $(MAKECMDGOALS),all)),)
PKG_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(PACKAGES) 2>/dev/null)
PKG_LIBS := $(shell $(PKG_CONFIG) --libs $(PACKAGES) 2>/dev/null) -liberty -lm
endif
ALL_CFLAGS = -std=gnu11 -D_GNU_SOURCE -DSYSPROFD_VERSION='"$(VERSION)"' -Idaemon -I$(B)/gen -I. \
	$(WARN) -fno-strict-aliasing -fstack-protector-strong -pthread $(PKG_CFLAGS) $(CFLAGS)
ALL_LDFLAGS = -pthread -Wl,-z,relro,-z,now $(LDFLAGS)
ifneq ($(SAN),)
ALL_CFLAGS += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=undefined
ALL_LDFLAGS += -fsanitize=$(SAN)
endif

GEN_C := $(B)/gen/sysprofd/v1/profile.pb-c.c $(patsubst proto/%.proto,$(B)/gen/%.pb-c.c,$(filter-out %/profile.proto,$(wildcard proto/sysprofd/v1/*.proto)))
GEN_H := $(GEN_C:.c=.h) $(B)/gen/sysprofd.skel.h $(B)/gen/syscall-names.h
# daemon/main.c and daemon/ctl/main.c are the two programs; the rest is one archive that tests link too.
LIB_C := $(filter-out daemon/main.c daemon/ctl/main.c,$(wildcard daemon/*/*.c daemon/*.c))
LIB_O := $(LIB_C:%.c=$(B)/%.o) $(GEN_C:.c=.o)
LIB := $(B)/libsysprofd.a
UNIT := $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(wildcard tests/unit/test-*.c))
BENCHES := $(patsubst tests/bench/%.c,$(B)/tests/bench/%,$(wildcard tests/bench/bench-*.c))
WORKLOADS := $(patsubst tests/workload/%.c,$(B)/tests/workload/%,$(wildcard tests/workload/*.c))
PROGRAMS := $(if $(wildcard daemon/main.c),$(B)/sysprofd) $(if $(wildcard daemon/ctl/main.c),$(B)/sysprofctl)

.PHONY: all demo kernel-check
all: $(PROGRAMS)
	@:

.SECONDARY:

# ---- generated -----------------------------------------------------------------------------------

$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h: proto/%.proto
	$(call say,PROTO)
	$(Q)mkdir -p $(B)/gen
	$(Q)protoc --c_out=$(B)/gen -Iproto $<

$(B)/gen/syscall-names.h: daemon/model/syscall-names.sh
	$(call say,NAMES)
	$(Q)mkdir -p $(@D)
	$(Q)daemon/model/syscall-names.sh $(CC) > $@.tmp && mv $@.tmp $@

$(B)/bpf/sysprofd.o: bpf/sysprofd.bpf.c $(wildcard bpf/*.h bpf/*.bpf.c)
	$(call say,BPF)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Wno-unused-function \
		-D__TARGET_ARCH_$(BPF_ARCH) -Ibpf -idirafter $(SYSROOT)/usr/include/$(shell $(CC) -print-multiarch) -I$(B)/gen -c $< -o $(B)/bpf/sysprofd.tmp.o
	$(Q)$(BPFTOOL) gen object $@ $(B)/bpf/sysprofd.tmp.o

$(B)/gen/sysprofd.skel.h: $(B)/bpf/sysprofd.o
	$(call say,SKEL)
	$(Q)mkdir -p $(@D)
	$(Q)$(BPFTOOL) gen skeleton $< name sysprofd_bpf > $@.tmp && mv $@.tmp $@

# ---- compiled ------------------------------------------------------------------------------------

$(B)/%.o: %.c | $(GEN_H)
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

# Embedded by the assembler, which tells no dependencies.
$(B)/daemon/export/assets.o: daemon/export/flame.css daemon/export/flame.js

$(B)/gen/%.o: $(B)/gen/%.c | $(GEN_H)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -w -MMD -MP -c $< -o $@

$(LIB): $(LIB_O)
	$(call say,AR)
	$(Q)rm -f $@ && $(CROSS)ar rcs $@ $^

$(B)/sysprofd: $(B)/daemon/main.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(B)/sysprofctl: $(B)/daemon/ctl/main.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

$(B)/tests/unit/%: $(B)/tests/unit/%.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS) -lcmocka

$(B)/tests/bench/%: $(B)/tests/bench/%.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(PKG_LIBS)

# Only what it uses comes along into the emulator.
$(B)/tests/kernels/%: $(B)/tests/kernels/%.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--as-needed -o $@ $^ $(PKG_LIBS)

# Workloads are the truth of end-to-end tests: no sanitizer, every function with a frame pointer (gcc 12 omits
# it in leaf functions from -O1 on, whatever is asked).
$(B)/tests/workload/%: tests/workload/%.c $(wildcard tests/workload/*.h)
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-parameter -O0 -g -fno-omit-frame-pointer \
		-pthread -o $@ $<

$(B)/tests/demo/demo: tests/demo/demo.c tests/workload/truth.h
	$(call say,CC)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-parameter -O0 -g -fno-omit-frame-pointer \
		-pthread -o $@ $<

demo: $(B)/tests/demo/demo
kernel-check: $(B)/tests/kernels/kernel-check
demo kernel-check:
	@:

# ---- what people call ----------------------------------------------------------------------------

# Packages come first, then a make of its own: what is installed decides how the rest is built.
.PHONY: deps run check check-kernels bench bench-stacks unit benches workloads install format lint clean help
deps:
	@packaging/deps.sh

run:
	@[ "$$(id -u)" = 0 ] || { echo 'make run installs packages and loads programs into the kernel: sudo make run' >&2; exit 1; }
	@packaging/deps.sh
	@$(MAKE) --no-print-directory all demo
	@tests/demo/run.sh $(B)

check:
	@packaging/deps.sh test
	@$(MAKE) --no-print-directory all unit workloads benches kernel-check demo
	@tests/check.sh $(B)

check-kernels:
	@packaging/deps.sh test
	@$(MAKE) --no-print-directory all kernel-check demo
	@tests/kernels/run.sh $(B)

bench:
	@packaging/deps.sh bench
	@$(MAKE) --no-print-directory all benches workloads
	@tests/bench/run.sh $(B)

bench-stacks:
	@packaging/deps.sh stacks
	@$(MAKE) --no-print-directory all benches
	@python3 tests/bench/stacks.py $(B)

unit: $(UNIT)
benches: $(BENCHES)
workloads: $(WORKLOADS)

install: all
	install -D -m 755 $(B)/sysprofd $(DESTDIR)$(PREFIX)/sbin/sysprofd
	install -D -m 755 $(B)/sysprofctl $(DESTDIR)$(PREFIX)/bin/sysprofctl
	install -D -m 644 packaging/sysprofctl.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sysprofctl
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)/etc/sysprofd/sysprofd.conf.d
	sed 's,/usr/sbin/sysprofd,$(PREFIX)/sbin/sysprofd,' sysprofd.service > $(DESTDIR)$(UNITDIR)/sysprofd.service
	install -m 644 packaging/sysprofd.socket $(DESTDIR)$(UNITDIR)/sysprofd.socket
	$(B)/sysprofd --print-config > $(DESTDIR)/etc/sysprofd/sysprofd.conf.example

# Each fuzzer runs for a while on its seeds; what it finds lies in $(B)-fuzz. Needs clang with its runtimes.
FUZZ_SECONDS ?= 60
.PHONY: fuzz fuzzers
fuzz:
	@$(MAKE) CC=$(CLANG) B=$(B)-fuzz SAN=address,undefined,fuzzer-no-link WARN=-w fuzzers
	@for f in tests/fuzz/fuzz-*.c; do n=$$(basename $$f .c); c=$(B)-fuzz/corpus/$$n; mkdir -p $$c; \
		echo "  FUZZ     $$n" && $(B)-fuzz/tests/fuzz/$$n -max_total_time=$(FUZZ_SECONDS) -timeout=10 \
		-verbosity=0 -print_final_stats=1 -artifact_prefix=$$c/../ $$c $$(ls -d tests/fuzz/$${n#fuzz-} 2>/dev/null) || exit 1; done
fuzzers: $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(wildcard tests/fuzz/fuzz-*.c))
$(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(LIB)
	$(call say,LD)
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(PKG_LIBS)

SOURCES = $(wildcard daemon/*.[ch] daemon/*/*.[ch] bpf/*.[ch] tests/*/*.[ch])
format:
	@clang-format -i $(SOURCES)

TIDIED = $(patsubst %.c,$(B)/tidy/%,$(wildcard daemon/*.c daemon/*/*.c))
# Everything that looks at the sources without running them.
lint: $(TIDIED)
	@clang-format --dry-run -Werror $(SOURCES)
	@for l in tests/lint/*.sh; do $$l >$(B)/lint.log || { cat $(B)/lint.log; exit 1; }; done

# A file at a time, and only what has changed: the object knows the headers. clang-tidy counts suppressed warnings
# on stderr, which nobody wants to read.
$(B)/tidy/%: %.c $(B)/%.o .clang-tidy
	$(call say,TIDY)
	$(Q)mkdir -p $(@D)
	$(Q)clang-tidy --quiet $< -- $(filter-out -W% -fstack%,$(ALL_CFLAGS)) 2>$@.log || { cat $@.log; exit 1; }
	$(Q)touch $@

clean:
	rm -rf $(B)

help:
	@echo 'make               build build/sysprofd and build/sysprofctl (no root)'
	@echo 'make deps          install the packages that the build needs (root)'
	@echo 'make run           install, build, record this host for 20 s, show the answers (root)'
	@echo 'make check         install, build, run every test, other kernels included (root)'
	@echo 'make check-kernels boot other kernels in the emulator and record there'
	@echo 'make bench         print what sysprofd costs (installs what it is compared with)'
	@echo 'make bench-stacks  how complete the stacks of real programs are (installs them)'
	@echo 'make install       DESTDIR= PREFIX=/usr'
	@echo 'make fuzz          fuzzers of what comes from outside, FUZZ_SECONDS=60 each (clang)'
	@echo 'make format, lint  source formatting and checks'
	@echo 'Variables: V=1 shows commands, B=dir builds elsewhere, SAN=address,undefined builds with sanitizers,'
	@echo '           CROSS=aarch64-linux-gnu- SYSROOT=dir builds for another machine,'
	@echo '           ONLY=test-x* runs a part of the tests; of bench-stacks, ONLY=python3 SECONDS_EACH=5'

-include $(B)/tests/kernels/kernel-check.d $(LIB_O:.o=.d) $(UNIT:=.d) $(BENCHES:=.d) $(B)/daemon/main.d $(B)/daemon/ctl/main.d
