# Every recipe is a command of `cargo xtask`, which works without just.

# List the recipes
default:
    @just --list

# Everything that must hold; `just test --fast` leaves out what needs a Kubernetes
test *ARGS:
    cargo xtask test {{ARGS}}

# End-to-end scenarios: `--all`, or those whose names contain one of the words given
e2e *ARGS:
    cargo xtask e2e {{ARGS}}

# Write the generated files; `just gen --check` only says which are stale
gen *ARGS:
    cargo xtask gen {{ARGS}}

# Licences, banned crates and sources of the dependencies
deny:
    cargo xtask deny

# The documentation as a site with search, in target/docs/site
docs:
    cargo xtask docs

# A Kubernetes on this machine with the operator in it
up *ARGS:
    cargo xtask up {{ARGS}}

# End what `just up` started; `just down --purge` removes what was built for it, too
down *ARGS:
    cargo xtask down {{ARGS}}

# The binary as it is shipped: fully static, stripped, at most 40 MB, or an error
release:
    cargo xtask release

# Measure the operator against its budgets, beside what the same machine needs without it
bench *ARGS:
    cargo xtask bench {{ARGS}}

# The operator's container image as an archive, made without an engine for containers
image *ARGS:
    cargo xtask image {{ARGS}}
