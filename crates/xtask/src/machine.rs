//! Whether this machine can do what a command asks of it: looked at before anything is touched, and refused with one
//! sentence. What is missing but can be installed is the affair of `packages`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::packages::{self, Tier};
use crate::{Failure, places};

const GIB: u64 = 1 << 30;
/// What sources, Go's own cache, the built components and images take, measured and rounded up.
const COLD: u64 = 24 * GIB;
/// What a bed takes while it runs.
const WARM: u64 = 6 * GIB;
/// What kubectl and helm take to be built.
const TOOLS: u64 = 8 * GIB;

/// What a machine is like, as far as it matters here.
#[derive(Clone, Debug)]
struct Machine {
    system: &'static str,
    user: User,
    /// What `go env GOVERSION` prints, if there is a Go.
    go: Option<String>,
    /// What its kernel is without, and what for.
    lacking: Vec<&'static str>,
    /// Bytes that can be written to where the cache is.
    free: u64,
    /// Whether the components are in the cache.
    is_warm: bool,
    has_apt: bool,
    /// Debian packages that are not there.
    missing: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    Other,
    /// Without the rights that root has on a machine of its own.
    RootOfContainer,
    Root,
}

const OVERLAYFS: &str = "overlayfs, on which containers stand";
const XFS: &str = "XFS, on which volumes stand";
const LOOP_DEVICES: &str = "loop devices, on which volumes stand";
const CONTROL_GROUPS: &str = "control groups for memory, in which containers run";

/// Refuses a machine that cannot do it, then installs what is missing.
pub(crate) fn prepare(tier: Tier) -> Result<(), Failure> {
    let needed = needed_go()?;
    if let Some(why) = refusal(&look(tier)?, tier, &needed) {
        return Err(Failure::Refused(why));
    }
    Ok(packages::ensure(tier)?)
}

/// Why not, if not.
fn refusal(machine: &Machine, tier: Tier, needed_go: &str) -> Option<String> {
    let rest = match tier {
        Tier::Build => None,
        Tier::Context => not_for_tools(machine, needed_go),
        Tier::Bed => not_for_a_bed(machine, needed_go),
    };
    rest.or_else(|| {
        let may_install = machine.user != User::Other && machine.has_apt;
        (!machine.missing.is_empty() && !may_install).then(|| {
            format!(
                "Programs are missing; install them, on Debian by: sudo {}",
                packages::command(&machine.missing)
            )
        })
    })
}

fn not_for_a_bed(machine: &Machine, needed_go: &str) -> Option<String> {
    if machine.system != "linux" {
        return Some(format!(
            "The test bed runs on Linux only, and this is {}.",
            machine.system
        ));
    }
    match machine.user {
        User::Other => {
            return Some(
                "The test bed makes network namespaces and mounts, which only root may: use sudo.".into(),
            );
        }
        User::RootOfContainer => {
            return Some(
                "Root lacks rights here, as in a container: the test bed needs a machine of its own, or a \
                 privileged container."
                    .into(),
            );
        }
        User::Root => {}
    }
    if let Some(why) = not_with_this_go(machine, needed_go) {
        return Some(why);
    }
    if let Some(lacking) = machine.lacking.first() {
        return Some(format!("This kernel has no {lacking}."));
    }
    let needed = if machine.is_warm { WARM } else { COLD };
    (machine.free < needed).then(|| {
        format!(
            "The test bed needs {} GiB of disk space for its cache, and {} GiB are free.",
            needed / GIB,
            machine.free / GIB
        )
    })
}

/// Tools and the operator's image are made here; what they are used on is somebody else's.
fn not_for_tools(machine: &Machine, needed_go: &str) -> Option<String> {
    if machine.system != "linux" {
        return Some(format!(
            "The operator's image is made on Linux only, and this is {}.",
            machine.system
        ));
    }
    not_with_this_go(machine, needed_go).or_else(|| {
        (!machine.is_warm && machine.free < TOOLS).then(|| {
            format!(
                "Building kubectl and helm needs {} GiB of disk space, and {} GiB are free.",
                TOOLS / GIB,
                machine.free / GIB
            )
        })
    })
}

fn not_with_this_go(machine: &Machine, needed_go: &str) -> Option<String> {
    match &machine.go {
        None => Some(format!(
            "Go is not on the PATH: the test bed is built with Go {needed_go} or newer."
        )),
        Some(found) if numbers(found) < numbers(needed_go) => Some(format!(
            "Go {needed_go} or newer is needed to build the test bed, and the one on the PATH is {found}."
        )),
        Some(_) => None,
    }
}

fn look(tier: Tier) -> Result<Machine, Failure> {
    let cache = places::cache()?;
    let features = [
        (has_filesystem("overlay"), OVERLAYFS),
        (has_filesystem("xfs"), XFS),
        (Path::new("/dev/loop-control").exists(), LOOP_DEVICES),
        (has_control_groups(Path::new("/sys/fs/cgroup")), CONTROL_GROUPS),
    ];
    Ok(Machine {
        system: std::env::consts::OS,
        user: user(),
        go: printed(
            Command::new("go")
                .args(["env", "GOVERSION"])
                .env("GOTOOLCHAIN", "local"),
        ),
        lacking: features
            .into_iter()
            .filter_map(|(there, feature)| (!there).then_some(feature))
            .collect(),
        free: free(&cache),
        is_warm: is_warm(&cache, tier),
        has_apt: packages::has_apt(),
        missing: packages::missing(tier),
    })
}

fn user() -> User {
    let has_rights = fs::read_to_string("/proc/self/status").is_ok_and(|status| has_rights(&status));
    match (packages::is_root(), has_rights) {
        (false, _) => User::Other,
        (true, false) => User::RootOfContainer,
        (true, true) => User::Root,
    }
}

/// To mount and to make networks: what a container's root usually may not.
fn has_rights(status: &str) -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_ADMIN: u64 = 1 << 21;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|rights| rights & NET_ADMIN != 0 && rights & SYS_ADMIN != 0)
}

/// Known to the kernel, or to be had as a module: asking loads nothing.
fn has_filesystem(name: &str) -> bool {
    let is_known = fs::read_to_string("/proc/filesystems").is_ok_and(|known| {
        known
            .lines()
            .any(|line| line.split_whitespace().last() == Some(name))
    });
    is_known || printed(Command::new("modprobe").args(["--dry-run", "--quiet", name])).is_some()
}

/// Of either generation.
fn has_control_groups(root: &Path) -> bool {
    root.join("memory").is_dir()
        || fs::read_to_string(root.join("cgroup.controllers"))
            .is_ok_and(|controllers| controllers.split_whitespace().any(|name| name == "memory"))
}

fn is_warm(cache: &Path, tier: Tier) -> bool {
    // The last that is built of what is needed.
    let last = if tier == Tier::Bed {
        "kubernetes-node-"
    } else {
        "helm-"
    };
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .any(|name| name.starts_with(last) && !name.contains('.'))
}

/// Of the file system that the cache is on, or will be.
fn free(cache: &Path) -> u64 {
    let there = cache.ancestors().find(|path| path.exists());
    let answer = printed(
        Command::new("df")
            .args(["--block-size=1", "--output=avail"])
            .arg(there.unwrap_or(Path::new("/"))),
    );
    answer
        .and_then(|answer| answer.lines().last()?.trim().parse().ok())
        .unwrap_or(0)
}

/// What a program prints, if it can be run and succeeds.
fn printed(command: &mut Command) -> Option<String> {
    // In the root directory no go.mod can make an old Go refuse to say how old it is.
    let output = command
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The newest Go that one of the tools modules asks for.
fn needed_go() -> Result<String, String> {
    let tools = places::root().join("e2e/tools");
    let unreadable = |error| format!("cannot read {}: {error}", tools.display());
    let mut newest = String::new();
    for directory in fs::read_dir(&tools).map_err(unreadable)? {
        let file = directory.map_err(unreadable)?.path().join("go.mod");
        // Not every tool is a Go module.
        if !file.is_file() {
            continue;
        }
        let text =
            fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        if let Some(needed) = text.lines().find_map(|line| line.strip_prefix("go "))
            && numbers(needed) > numbers(&newest)
        {
            needed.trim().clone_into(&mut newest);
        }
    }
    Ok(newest)
}

/// `go1.26.8`, `1.26` and `go1.27rc1` as numbers that can be compared; what is not a number ends it.
fn numbers(version: &str) -> Vec<u32> {
    version
        .trim_start_matches("go")
        .split('.')
        .map_while(|part| {
            part.split(|c: char| !c.is_ascii_digit())
                .next()
                .and_then(|n| n.parse().ok())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Machine {
        Machine {
            system: "linux",
            user: User::Root,
            go: Some("go1.26.8".into()),
            lacking: Vec::new(),
            free: COLD,
            is_warm: false,
            has_apt: true,
            missing: vec!["xfsprogs"],
        }
    }

    fn refused(change: impl FnOnce(&mut Machine)) -> Option<String> {
        let mut machine = good();
        change(&mut machine);
        refusal(&machine, Tier::Bed, "1.26.6")
    }

    #[test]
    fn a_good_machine_is_not_refused_even_if_packages_must_be_installed_first() {
        assert_eq!(refused(|_| ()), None);
        assert_eq!(
            refused(|machine| {
                machine.is_warm = true;
                machine.free = WARM;
            }),
            None
        );
    }

    #[test]
    fn each_thing_wrong_with_a_machine_is_told_in_one_sentence() {
        type Change = fn(&mut Machine);
        let table: &[(Change, &str)] = &[
            (
                |m| m.system = "macos",
                "The test bed runs on Linux only, and this is macos.",
            ),
            (|m| m.user = User::Other, "which only root may: use sudo."),
            (
                |m| m.user = User::RootOfContainer,
                "Root lacks rights here, as in a container",
            ),
            (
                |m| m.go = None,
                "Go is not on the PATH: the test bed is built with Go 1.26.6 or newer.",
            ),
            (
                |m| m.go = Some("go1.9.7".into()),
                "the one on the PATH is go1.9.7.",
            ),
            (|m| m.lacking.push(OVERLAYFS), "This kernel has no overlayfs"),
            (|m| m.lacking.push(XFS), "This kernel has no XFS"),
            (
                |m| m.lacking.push(LOOP_DEVICES),
                "This kernel has no loop devices",
            ),
            (
                |m| m.lacking.push(CONTROL_GROUPS),
                "This kernel has no control groups for memory",
            ),
            (
                |m| m.free = 7 * GIB,
                "The test bed needs 24 GiB of disk space for its cache, and 7 GiB are free.",
            ),
            (
                |m| {
                    m.is_warm = true;
                    m.free = WARM - 1;
                },
                "needs 6 GiB of disk space for its cache, and 5 GiB are free.",
            ),
            (
                |m| m.has_apt = false,
                "on Debian by: sudo apt-get install -y --no-install-recommends xfsprogs",
            ),
        ];
        for (change, expected) in table {
            let why = refused(change).unwrap_or_else(|| panic!("not refused: {expected}"));
            assert!(why.contains(expected), "{why}");
            assert!(!why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn what_needs_no_bed_runs_without_root_go_and_disk_space() {
        let mut machine = good();
        machine.user = User::Other;
        machine.go = None;
        machine.free = 0;
        machine.missing.clear();
        assert_eq!(refusal(&machine, Tier::Build, "1.26.6"), None);
        machine.missing = vec!["gcc"];
        let why = refusal(&machine, Tier::Build, "1.26.6").expect("a compiler is missing");
        assert!(
            why.contains("sudo apt-get install -y --no-install-recommends gcc"),
            "{why}"
        );
    }

    #[test]
    fn another_kubernetes_needs_go_and_room_for_tools_and_neither_root_nor_a_kernel() {
        let mut machine = good();
        machine.user = User::Other;
        machine.lacking.push(OVERLAYFS);
        machine.missing.clear();
        machine.free = TOOLS;
        let refused = |machine: &Machine| refusal(machine, Tier::Context, "1.26.6").unwrap_or_default();
        assert_eq!(refused(&machine), "");
        machine.free = TOOLS - 1;
        assert!(refused(&machine).contains("needs 8 GiB of disk space, and 7 GiB are free"));
        machine.is_warm = true;
        assert_eq!(refused(&machine), "");
        machine.go = None;
        assert!(refused(&machine).contains("Go is not on the PATH"));
        machine.system = "macos";
        assert!(refused(&machine).contains("on Linux only, and this is macos"));
    }

    #[test]
    fn rights_are_read_from_the_kernels_bits() {
        assert!(has_rights("Name:\tx\nCapEff:\t000001fffeffffff\n"));
        assert!(
            !has_rights("CapEff:\t00000000a80425fb\n"),
            "a container's usual ones"
        );
        assert!(!has_rights(""));
    }

    #[test]
    fn this_machine_is_looked_at_without_failing() {
        let Ok(machine) = look(Tier::Bed) else {
            panic!("a machine can always be looked at");
        };
        assert_eq!(machine.system, std::env::consts::OS);
        assert!(machine.free > 0);
        assert!(!needed_go().expect("the tools modules are there").is_empty());
    }
}
