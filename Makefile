# What a user or a CI machine types. Needs: a Rust toolchain, a C compiler, Python 3. No GPU.
#
#   make            the library and the C examples
#   make run        the main job: examples and a replay on the host driver, and the CUDA examples where there is a GPU
#   make test       every test that needs no GPU
#   make lint       ruff, mypy and pyright on the Python package; they come from PyPI
#   make check      what CI runs (.ci/run)
#   make adapters   the adapters for PyTorch, for a wheel; `make test-adapters` runs each in its PyTorch (large downloads)
#   make bench      time of the calls on the host driver; `make instructions` counts them, with valgrind and gungraun-runner
#   make fuzz       generated input for FUZZ_SECONDS seconds for each target
#   make deny       licences, duplicates and origins of the crates, with cargo-deny (deny.toml)
#   make reproducible  the release library twice, in two folders: the same bytes?
#   make sbom       what the library is made of, as CycloneDX, in target/sbom
#   make abi-check  the C ABI beside that of the last tag, with abidiff
#   make install    PREFIX=/usr/local DESTDIR=

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-builtin-rules

CARGO   ?= cargo
PYTHON  ?= python3
CC      ?= cc
CFLAGS  ?= -O2
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
DESTDIR ?=

# One version, kept in Cargo.toml. The SONAME has its first two numbers (build.rs).
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
MAJOR   := $(firstword $(subst ., ,$(VERSION)))
MINOR   := $(word 2,$(subst ., ,$(VERSION)))
SONAME  := libforebay.so.$(MAJOR).$(MINOR)

# Everything below finds cargo's output there, wherever else the user sends other projects'.
export CARGO_TARGET_DIR := $(CURDIR)/target
RELEASE := target/release
# A test installs the library that it was built with: make install LIBRARY=...
LIBRARY ?= $(RELEASE)/libforebay.so

C_SOURCES   := $(wildcard examples/c/*.c)
C_EXAMPLES  := $(C_SOURCES:examples/c/%.c=target/examples-c/%)
PY          := examples/python-ctypes
SMALL_TRACE := examples/replay/small.csv.gz
ON_HOST     := FOREBAY_DRIVER=host
# The Python package as it is in this checkout.
PACKAGE     := PYTHONPATH=python

.PHONY: all build adapters run run-host run-cuda test test-adapters lint check abi-check bench instructions fuzz deny reproducible sbom install clean FORCE
all: build

# ---- build --------------------------------------------------------------------------------------------------------

build: $(RELEASE)/libforebay.so $(RELEASE)/libforebay_core.so $(C_EXAMPLES)

# Cargo knows what is up to date, make does not. The link is what the loader looks for: the SONAME.
$(RELEASE)/libforebay.so: FORCE
	$(CARGO) build --release
	ln -sf libforebay.so $(RELEASE)/$(SONAME)

# The Python package's extension, which finds the library beside itself.
$(RELEASE)/libforebay_core.so: FORCE
	$(CARGO) build --release -p forebay-python

target/examples-c/%: examples/c/%.c include/forebay.h $(RELEASE)/libforebay.so
	@mkdir -p $(@D)
	$(CC) -std=c11 -Wall -Wextra -Werror $(CFLAGS) -Iinclude $< -o $@ \
	  -L$(RELEASE) -lforebay -pthread -Wl,-rpath,'$$ORIGIN/../release'

# One for each minor version of PyTorch, or for those in TORCH: make adapters TORCH="2.11 2.15". Needs pip, but no PyTorch.
adapters:
	$(PYTHON) packaging/adapters.py $(TORCH)

# ---- run ----------------------------------------------------------------------------------------------------------

run: build
	@$(MAKE) --no-print-directory run-host
	@if $(PYTHON) tests/gpu/available.py; then $(MAKE) --no-print-directory run-cuda; \
	else echo; echo "== CUDA: no usable GPU here, so the CUDA examples were left out"; fi

run-host:
	@echo; echo "== examples/c/minimal, host driver"
	@$(ON_HOST) target/examples-c/minimal
	@echo; echo "== examples/c/threads, host driver"
	@$(ON_HOST) target/examples-c/threads
	@echo; echo "== examples/c/resources, host driver"
	@$(ON_HOST) target/examples-c/resources
	@echo; echo "== examples/c/grow, host driver"
	@$(ON_HOST) target/examples-c/grow
	@echo; echo "== examples/c/share, host driver"
	@$(ON_HOST) target/examples-c/share
	@echo; echo "== $(PY)/host_demo.py"
	@$(ON_HOST) $(PYTHON) $(PY)/host_demo.py
	@for name in buffers grow share; do \
	  echo; echo "== examples/python/$$name.py, host driver"; $(ON_HOST) $(PACKAGE) $(PYTHON) examples/python/$$name.py; \
	done
	@echo; echo "== replay of $(SMALL_TRACE), host driver"
	@$(ON_HOST) $(CARGO) run --quiet --release --example replay -- $(SMALL_TRACE)

# 77 is what an example answers when PyTorch, CuPy or NumPy is not installed.
run-cuda:
	@echo; echo "== examples/c/minimal, CUDA"
	@FOREBAY_DRIVER=cuda target/examples-c/minimal
	@echo; echo "== examples/c/threads, CUDA"
	@FOREBAY_DRIVER=cuda target/examples-c/threads
	@echo; echo "== examples/c/resources, CUDA"
	@FOREBAY_DRIVER=cuda target/examples-c/resources
	@echo; echo "== examples/c/grow, CUDA"
	@FOREBAY_DRIVER=cuda target/examples-c/grow
	@echo; echo "== examples/c/share, CUDA"
	@FOREBAY_DRIVER=cuda target/examples-c/share
	@for name in buffers grow share; do \
	  echo; echo "== examples/python/$$name.py, CUDA"; FOREBAY_DRIVER=cuda $(PACKAGE) $(PYTHON) examples/python/$$name.py; \
	done
	@for name in cupy_arrays torch_and_cupy torch_graph exceptions torch_train; do \
	  echo; echo "== $(PY)/$$name.py"; \
	  code=0; FOREBAY_DRIVER=cuda $(PYTHON) $(PY)/$$name.py || code=$$?; \
	  if [ $$code != 0 ] && [ $$code != 77 ]; then exit $$code; fi; \
	done

# ---- test ---------------------------------------------------------------------------------------------------------

# nextest runs each test in its own process and prints one summary, but does not run documentation tests.
# tests/python_package.rs runs the package's tests, with the extension.
test:
	$(CARGO) build -p forebay-python
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	  $(CARGO) nextest run --no-fail-fast && $(CARGO) test --doc; \
	else \
	  mkdir -p target; code=0; $(CARGO) test --no-fail-fast 2>&1 | tee target/test.log || code=$$?; \
	  awk '/^test result:/ { p += $$4; f += $$6; s += $$8 } END { print p " passed, " f " failed, " s " ignored" }' target/test.log; \
	  exit $$code; \
	fi

# Calls every function of each adapter in the PyTorch that it is for, on the host driver; all, or those in TORCH.
test-adapters: $(RELEASE)/libforebay.so adapters
	$(PYTHON) tests/adapters/run.py $(TORCH)

# Where PyPI cannot be reached the checks are left out. A program that has mistakes on purpose shows that they can fail.
LINT        := target/tools/lint
LINTED      := python tests/python examples/python setup.py
$(LINT)/installed: tests/python/requirements-lint.txt
	$(PYTHON) -m venv $(LINT)
	@if $(LINT)/bin/pip install --quiet --disable-pip-version-check -r $<; then touch $@; \
	elif $(LINT)/bin/pip download --quiet --no-deps --dest $(LINT) ruff; then exit 1; fi

lint: $(LINT)/installed
	@if [ ! -e $< ]; then echo "skipped: PyPI cannot be reached"; else set -x; \
	  $(LINT)/bin/ruff check --quiet $(LINTED); $(LINT)/bin/ruff format --check --quiet $(LINTED); \
	  $(LINT)/bin/mypy; $(LINT)/bin/pyright; \
	fi

check:
	.ci/run

abi-check:
	packaging/abi-check

# Each target in turn, for so long. CI's are short; hours find more. A failure names a seed, which is tried again by
# BOLERO_RANDOM_SEED=... FUZZ_SECONDS=1 make fuzz FUZZ_TARGETS=calls.
FUZZ_SECONDS ?= 300
FUZZ_TARGETS ?= calls exchange dlpack trace
fuzz:
	BOLERO_RANDOM_TEST_TIME_MS=$$(( $(FUZZ_SECONDS) * 1000 )) RUST_BACKTRACE=0 \
	  $(CARGO) test -p forebay-fuzz $(FUZZ_TARGETS:%=--test %) --no-fail-fast -- --nocapture

# Installed into target/tools where it is not there.
deny:
	@packaging/tool cargo-deny 0.20.2 || { echo "skipped: cargo-deny cannot be installed here"; exit 0; }; \
	  target/tools/bin/cargo-deny --locked check bans licenses sources

reproducible:
	packaging/reproducible

sbom:
	packaging/sbom

# ---- bench --------------------------------------------------------------------------------------------------------

bench:
	$(CARGO) bench -p forebay-benches --bench calls --bench arena

# One line a bench: its name and the instructions of 1000 calls.
instructions:
	@$(CARGO) bench --quiet -p forebay-benches --bench instructions | \
	  awk '/^instructions::/ { sub(/:\(.*/, ""); name = $$0 } /Instructions:/ { split($$2, n, "|"); printf "%10d  %s\n", n[1], name }'

# ---- install ------------------------------------------------------------------------------------------------------

# Builds first where it can. Root, who installs, often has no cargo: then what was built before is installed.
ifeq ($(LIBRARY),$(RELEASE)/libforebay.so)
ifneq ($(shell command -v $(CARGO)),)
install: $(LIBRARY)
endif
endif

FILL = sed -e 's|@VERSION@|$(VERSION)|g' -e 's|@MAJOR@|$(MAJOR)|g' -e 's|@MINOR@|$(MINOR)|g' -e 's|@PREFIX@|$(PREFIX)|g' \
  -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@INCLUDEDIR@|$(PREFIX)/include|g' \
  -e "s|@LIBDIR_TO_PREFIX@|$$(realpath -m --relative-to='$(LIBDIR)' '$(PREFIX)')|g"

install:
	@test -e '$(LIBRARY)' || { echo "there is no $(LIBRARY) to install: run make first"; exit 1; }
	install -d '$(DESTDIR)$(PREFIX)/include' '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(LIBDIR)/cmake/forebay'
	install -m 755 '$(LIBRARY)' '$(DESTDIR)$(LIBDIR)/libforebay.so.$(VERSION)'
	ln -sf libforebay.so.$(VERSION) '$(DESTDIR)$(LIBDIR)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(LIBDIR)/libforebay.so'
	install -m 644 include/forebay.h include/forebay.hpp '$(DESTDIR)$(PREFIX)/include/'
	$(FILL) packaging/forebay.pc.in > '$(DESTDIR)$(LIBDIR)/pkgconfig/forebay.pc'
	$(FILL) packaging/forebayConfig.cmake.in > '$(DESTDIR)$(LIBDIR)/cmake/forebay/forebayConfig.cmake'
	$(FILL) packaging/forebayConfigVersion.cmake.in > '$(DESTDIR)$(LIBDIR)/cmake/forebay/forebayConfigVersion.cmake'

clean:
	$(CARGO) clean
