//! A bed's directory: everything it writes, and the record of every process it started. Whoever owns the bed can
//! be killed at any moment; what it leaves is ended by a watchdog at once, and by [`clean`] if that died too.
//!
//! Mounts and loop devices of a bed belong to namespaces that end with its processes. Control groups do not: they
//! bear the directory's name, and are removed with it. The cable to this host would stay for as long as the kernel
//! has something to say to processes that are gone, so it is recorded and removed as well.
//!
//! Nothing outside such a directory is removed and no process that it does not record is signalled.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cgroup;
use crate::deadline::until;
use crate::process::{ProcessId, Sent};

/// What the names of all beds' directories begin with. The owner's pid and start time follow, so that a directory
/// can be attributed from the instant it exists.
pub const PREFIX: &str = "etcd-operator-bed-";

/// One line `PID START` for each process of the bed.
const RECORD: &str = "processes";

/// The cable to this host, if there is one: `INTERFACE INDEX`. A name can be taken again, an index cannot.
const CABLE: &str = "cable";

/// Blocks until its standard input ends, which happens when the owner is gone for whatever reason, and then does
/// what the owner had no chance to do. It compares start times as [`ProcessId`] does.
const WATCHDOG: &str = r#"
bed=$1
while read -r _; do :; done
while read -r pid started; do
  [ "$pid" != $$ ] || continue
  stat=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
  set -- ${stat##*) }
  [ "${20}" != "$started" ] || kill -KILL "$pid"
done < "$bed/processes" 2>/dev/null
if read -r name index < "$bed/cable" && [ "$(cat "/sys/class/net/$name/ifindex")" = "$index" ]; then
  ip link delete "$name"
fi 2>/dev/null
for try in 1 2 3 4 5 6 7 8 9 10; do
  find /sys/fs/cgroup/"${bed##*/}" /sys/fs/cgroup/*/"${bed##*/}" -depth -type d -exec rmdir {} + 2>/dev/null
  rm -rf --one-file-system "$bed" 2>/dev/null
  set -- "$bed" /sys/fs/cgroup/*/"${bed##*/}"
  [ -e "$1" ] || [ -e "$2" ] || exit 0
  sleep 0.2
done
"#;

/// The directory of a live bed. Dropping it ends every recorded process and removes the directory.
#[derive(Debug)]
pub struct BedDir {
    path: PathBuf,
    watchdog: Child,
}

/// What [`clean`] found and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Directories of beds whose owner was gone.
    pub beds: usize,
    /// Processes of theirs that still ran.
    pub processes: usize,
}

impl BedDir {
    /// Makes a fresh directory, readable by this user only, and starts its watchdog.
    pub fn create() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let owner = ProcessId::own()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("{PREFIX}{}-{}-{number}", owner.pid(), owner.started()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make the bed's directory {}", path.display()))?;
        let watchdog = File::create(path.join(RECORD))
            .context("cannot make the record of processes")
            .and_then(|_| {
                Command::new("sh")
                    .args(["-c", WATCHDOG, "bed-watchdog"])
                    .arg(&path)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .current_dir("/")
                    .process_group(0)
                    .spawn()
                    .context("cannot start the bed's watchdog")
            });
        match watchdog {
            Ok(watchdog) => {
                let bed = Self { path, watchdog };
                bed.record(bed.watchdog.id())?;
                Ok(bed)
            }
            Err(error) => {
                let _ = fs::remove_dir_all(&path);
                Err(error)
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name, which no other bed has.
    pub fn name(&self) -> &str {
        name_of(&self.path)
    }

    /// Writes a file that only this user may read.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path.join(name);
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(content.as_ref()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Notes a process just started as one of this bed's.
    pub fn record(&self, pid: u32) -> Result<ProcessId> {
        let process = ProcessId::of(pid).with_context(|| format!("process {pid} ended at once"))?;
        let record = self.path.join(RECORD);
        OpenOptions::new()
            .append(true)
            .open(&record)
            .and_then(|mut file| file.write_all(format!("{process}\n").as_bytes()))
            .with_context(|| format!("cannot note process {pid} in {}", record.display()))?;
        Ok(process)
    }

    /// Notes an interface of this host as one end of this bed's cable.
    pub(crate) fn record_cable(&self, interface: &str) -> Result<()> {
        let index = index_of(interface).with_context(|| format!("there is no interface {interface}"))?;
        self.write(CABLE, format!("{interface} {index}\n"))?;
        Ok(())
    }

    /// The watchdog, as recorded.
    pub fn watchdog(&self) -> Option<ProcessId> {
        ProcessId::of(self.watchdog.id())
    }
}

impl Drop for BedDir {
    fn drop(&mut self) {
        let own = self.watchdog.id();
        for process in recorded(&self.path)
            .into_iter()
            .filter(|process| process.pid() != own)
        {
            let _ = process.send(Sent::Kill);
        }
        remove_cable(&self.path);
        // Ended processes may still be closing files; the watchdog tries again for as long as that lasts.
        cgroup::remove(self.name());
        let _ = fs::remove_dir_all(&self.path);
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// Ends and removes what beds have left whose owner no longer runs. Beds in use and other users' are left alone.
pub async fn clean() -> Result<Cleaned> {
    clean_in(&std::env::temp_dir()).await
}

/// [`clean`] for one directory of beds.
pub async fn clean_in(parent: &Path) -> Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    let entries = fs::read_dir(parent).with_context(|| format!("cannot list {}", parent.display()))?;
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).context("cannot list the beds' directories"),
        };
        if !is_abandoned(&path) {
            continue;
        }
        for process in recorded(&path) {
            if process
                .send(Sent::Kill)
                .with_context(|| format!("cannot end process {}", process.pid()))?
            {
                cleaned.processes += 1;
            }
            until(
                &format!("end of process {}", process.pid()),
                Duration::from_secs(10),
                || async move { Ok((!process.is_running()).then_some(())) },
            )
            .await?;
        }
        remove_cable(&path);
        until(
            &format!("removal of the control groups of {}", path.display()),
            Duration::from_secs(10),
            || async { Ok(cgroup::remove(name_of(&path)).then_some(())) },
        )
        .await?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => cleaned.beds += 1,
        }
    }
    Ok(cleaned)
}

/// A real directory of this user's, named as a bed, whose owner is gone. Anybody may write to the system's
/// directory for temporary files, so a record in somebody else's directory is not to be believed.
fn is_abandoned(path: &Path) -> bool {
    let ours = fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw());
    ours && path
        .file_name()
        .and_then(owner)
        .is_some_and(|owner| !owner.is_running())
}

fn owner(name: &OsStr) -> Option<ProcessId> {
    let mut parts = name.to_str()?.strip_prefix(PREFIX)?.split('-');
    let owner = ProcessId::recorded(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let number: Option<u32> = parts.next()?.parse().ok();
    (number.is_some() && parts.next().is_none()).then_some(owner)
}

/// Removes a recorded cable, unless it is gone and its name is another's by now.
fn remove_cable(bed: &Path) {
    let record = fs::read_to_string(bed.join(CABLE)).unwrap_or_default();
    let Some((interface, index)) = record.trim().split_once(' ') else {
        return;
    };
    if index_of(interface).as_deref() == Some(index) {
        // Whether it worked shows in what is left, which is looked at anyway.
        let _ = Command::new("ip")
            .args(["link", "delete", interface])
            .stderr(Stdio::null())
            .status();
    }
}

fn index_of(interface: &str) -> Option<String> {
    let index = fs::read_to_string(format!("/sys/class/net/{interface}/ifindex")).ok()?;
    Some(index.trim().to_owned())
}

/// What is removed under this name must be a bed's; an empty name would be everything.
fn name_of(bed: &Path) -> &str {
    bed.file_name()
        .and_then(OsStr::to_str)
        .filter(|name| owner(OsStr::new(name)).is_some())
        .expect("a bed's directory bears the name of a bed")
}

fn recorded(bed: &Path) -> Vec<ProcessId> {
    fs::read_to_string(bed.join(RECORD))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place for fake beds, itself a bed so that it is removed in any case.
    fn stage() -> BedDir {
        BedDir::create().unwrap()
    }

    fn sleeper() -> Child {
        Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn bed_of(owner: ProcessId, stage: &BedDir, processes: &[ProcessId]) -> PathBuf {
        let bed = stage
            .path()
            .join(format!("{PREFIX}{}-{}-0", owner.pid(), owner.started()));
        fs::create_dir(&bed).unwrap();
        let lines: Vec<String> = processes.iter().map(ProcessId::to_string).collect();
        fs::write(bed.join(RECORD), lines.join("\n")).unwrap();
        bed
    }

    #[tokio::test]
    async fn a_bed_without_owner_is_ended_and_removed() {
        let stage = stage();
        let own = ProcessId::own().unwrap();
        let mut child = sleeper();
        let process = ProcessId::of(child.id()).unwrap();
        let bed = bed_of(
            ProcessId::recorded(own.pid(), own.started() - 1),
            &stage,
            &[process],
        );

        let cleaned = clean_in(stage.path()).await.unwrap();

        let running = process.is_running();
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(
            cleaned,
            Cleaned {
                beds: 1,
                processes: 1
            }
        );
        assert!(!running);
        assert!(!bed.exists());
    }

    #[tokio::test]
    async fn a_bed_in_use_and_a_stranger_with_a_recorded_pid_are_left_alone() {
        let stage = stage();
        let own = ProcessId::own().unwrap();
        let mut child = sleeper();
        let process = ProcessId::of(child.id()).unwrap();
        let in_use = bed_of(own, &stage, &[process]);
        let reused = ProcessId::recorded(process.pid(), process.started() - 1);
        let abandoned = bed_of(
            ProcessId::recorded(own.pid(), own.started() - 1),
            &stage,
            &[reused],
        );

        let cleaned = clean_in(stage.path()).await.unwrap();

        let running = process.is_running();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(
            cleaned,
            Cleaned {
                beds: 1,
                processes: 0
            }
        );
        assert!(running);
        assert!(in_use.exists());
        assert!(!abandoned.exists());
    }

    #[test]
    fn only_names_of_the_exact_form_are_beds() {
        let of = |name: &str| owner(OsStr::new(name));
        assert_eq!(
            of("etcd-operator-bed-12-345-0"),
            Some(ProcessId::recorded(12, 345))
        );
        for other in [
            "etcd-operator-bed-12-345",
            "etcd-operator-bed-12-345-0-1",
            "etcd-operator-bed-x-1-0",
            "bed-1-2-3",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
