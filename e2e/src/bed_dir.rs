//! A bed's directory: everything it writes, and the record of every process it started. Whoever owns the bed can
//! be killed at any moment; what it leaves is ended by a watchdog at once, and by [`clean`] if that died too. A
//! reboot ends everything but the directory, and what the directory records is then about other processes.
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
use rustix::fs::Mode;

use crate::cgroup;
use crate::chronicle::Chronicle;
use crate::deadline::until;
use crate::process::{self, ProcessId, Sent};

/// What the names of all beds' directories begin with. The beginning of the boot's ID, the owner's pid and start time
/// follow, so that a directory can be attributed from the instant it exists.
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
        // What a bed starts makes files for users without rights, and the directory above them all is ours alone.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let owner = ProcessId::own()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent().join(name_for(&boot_tag()?, owner, number));
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

    /// What happened in it.
    pub fn chronicle(&self) -> Chronicle {
        Chronicle::of(&self.path)
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

/// A bed whose owner runs.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// Its name.
    pub(crate) name: String,
    /// Its interface on this host, if it has one.
    pub(crate) cable: Option<String>,
    /// Its processes, as recorded.
    pub(crate) processes: Vec<ProcessId>,
}

/// The beds whose owners run, this process's own among them.
pub(crate) fn live() -> Result<Vec<Live>> {
    let boot = boot_tag()?;
    let entries = fs::read_dir(parent()).into_iter().flatten().flatten();
    let live = entries.map(|entry| entry.path()).filter_map(|path| {
        let (of, owner) = path.file_name().and_then(owner)?;
        let cable = fs::read_to_string(path.join(CABLE)).ok();
        (of == boot && owner.is_running()).then(|| Live {
            name: name_of(&path).to_owned(),
            cable: cable.and_then(|cable| Some(cable.split_once(' ')?.0.to_owned())),
            processes: recorded(&path),
        })
    });
    Ok(live.collect())
}

/// Ends and removes what beds have left whose owner no longer runs. Beds in use and other users' are left alone.
pub async fn clean() -> Result<Cleaned> {
    clean_in(&parent()).await
}

/// Where the directories of beds are: on a disk, where the usual place for temporary files often is in memory, and a
/// sync of what is in memory means nothing.
pub fn parent() -> PathBuf {
    let lasting = Path::new("/var/tmp");
    if std::env::var_os("TMPDIR").is_none() && lasting.is_dir() {
        lasting.to_owned()
    } else {
        std::env::temp_dir()
    }
}

/// [`clean`] for one directory of beds.
pub async fn clean_in(parent: &Path) -> Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    let boot = boot_tag()?;
    let entries = fs::read_dir(parent).with_context(|| format!("cannot list {}", parent.display()))?;
    for entry in entries {
        let path = match entry {
            Ok(entry) => entry.path(),
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).context("cannot list the beds' directories"),
        };
        let Some(left) = abandoned(&path, &boot) else {
            continue;
        };
        // After a reboot whoever has these pids and this interface is somebody else.
        let processes = if left.of_this_boot {
            recorded(&path)
        } else {
            Vec::new()
        };
        for process in processes {
            if process
                .send(Sent::Kill)
                .with_context(|| format!("cannot end process {}", process.pid()))?
            {
                cleaned.processes += 1;
            }
            until(
                &format!("end of process {}", process.pid()),
                Duration::from_secs(30),
                || async move { Ok((!process.is_running()).then_some(())) },
            )
            .await?;
        }
        if left.of_this_boot {
            remove_cable(&path);
        }
        until(
            &format!("removal of the control groups of {}", path.display()),
            Duration::from_secs(30),
            || async { Ok(cgroup::remove(name_of(&path)).then_some(())) },
        )
        .await
        .with_context(|| {
            format!(
                "processes that {} does not name are in this bed's control groups; look at them and end them: {:?}",
                path.join(RECORD).display(),
                cgroup::inhabitants(name_of(&path))
            )
        })?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", path.display()));
            }
            _ => cleaned.beds += 1,
        }
    }
    Ok(cleaned)
}

/// A bed whose owner is gone.
struct Abandoned {
    of_this_boot: bool,
}

/// A real directory of this user's, named as a bed, whose owner is gone. Anybody may write to the system's
/// directory for temporary files, so a record in somebody else's directory is not to be believed.
fn abandoned(path: &Path, boot: &str) -> Option<Abandoned> {
    let ours = fs::symlink_metadata(path)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw());
    let (of, owner) = path.file_name().filter(|_| ours).and_then(owner)?;
    let of_this_boot = of == boot;
    (!of_this_boot || !owner.is_running()).then_some(Abandoned { of_this_boot })
}

fn name_for(boot: &str, owner: ProcessId, number: u32) -> String {
    format!("{PREFIX}{boot}-{}-{}-{number}", owner.pid(), owner.started())
}

/// As much of the boot's ID as it takes to tell boots apart.
fn boot_tag() -> Result<String> {
    let mut boot = process::boot()?;
    boot.truncate(8);
    Ok(boot)
}

/// The boot and the owner that a bed's name tells.
fn owner(name: &OsStr) -> Option<(&str, ProcessId)> {
    let mut parts = name.to_str()?.strip_prefix(PREFIX)?.split('-');
    let boot = parts.next().filter(|boot| boot.len() == 8)?;
    let owner = ProcessId::recorded(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let number: Option<u32> = parts.next()?.parse().ok();
    (number.is_some() && parts.next().is_none()).then_some((boot, owner))
}

/// The names of beds in a text that somebody still owns, wherever their directories are.
pub fn owned_in(text: &str) -> impl Iterator<Item = &str> {
    let boot = boot_tag().unwrap_or_default();
    let starts = text.match_indices(PREFIX).map(|(start, _)| &text[start..]);
    let names = starts.map(|rest| {
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let end = rest.bytes().position(|byte| !is_of_name(&byte));
        &rest[..end.unwrap_or(rest.len())]
    });
    names.filter(move |name| {
        owner(OsStr::new(name)).is_some_and(|(of, owner)| of == boot && owner.is_running())
    })
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

/// A line that cannot be read hides no other.
fn recorded(bed: &Path) -> Vec<ProcessId> {
    String::from_utf8_lossy(&fs::read(bed.join(RECORD)).unwrap_or_default())
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
        bed_of_boot(&boot_tag().unwrap(), owner, stage, processes)
    }

    fn bed_of_boot(boot: &str, owner: ProcessId, stage: &BedDir, processes: &[ProcessId]) -> PathBuf {
        let bed = stage.path().join(name_for(boot, owner, 0));
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

    #[test]
    fn a_bed_is_known_by_its_name_wherever_it_is_for_as_long_as_its_owner_runs() {
        let name = name_for(
            &boot_tag().expect("a boot"),
            ProcessId::own().expect("this one"),
            0,
        );
        let text = format!("loop device of /elsewhere/{name}/disks/1.img");
        assert_eq!(owned_in(&text).collect::<Vec<_>>(), [name.as_str()]);
        let gone = name_for(&boot_tag().expect("a boot"), ProcessId::recorded(u32::MAX, 1), 0);
        let before = name_for("01234567", ProcessId::own().expect("this one"), 0);
        for text in [gone, before, format!("{PREFIX}x"), "mount /mnt".to_owned()] {
            assert_eq!(owned_in(&text).next(), None, "{text}");
        }
    }

    #[test]
    fn what_a_bed_starts_does_not_hide_files_as_its_owner_does() {
        rustix::process::umask(Mode::from_raw_mode(0o077));
        let bed = stage();
        let status = fs::read_to_string(format!("/proc/{}/status", bed.watchdog.id())).unwrap();
        assert!(status.contains("\nUmask:\t0022\n"), "{status}");
    }

    #[tokio::test]
    async fn a_record_with_lines_that_cannot_be_read_still_ends_what_the_others_name() {
        let stage = stage();
        let own = ProcessId::own().unwrap();
        let mut child = sleeper();
        let process = ProcessId::of(child.id()).unwrap();
        let bed = bed_of(ProcessId::recorded(own.pid(), own.started() - 1), &stage, &[]);
        let torn = [
            b"\xff\xfe 1\n-1 5\n77".as_slice(),
            format!("\n{process}\n12").as_bytes(),
        ]
        .concat();
        fs::write(bed.join(RECORD), torn).unwrap();

        let cleaned = clean_in(stage.path()).await.unwrap();

        let running = process.is_running();
        let _ = child.kill();
        child.wait().unwrap();
        assert_eq!(cleaned.processes, 1);
        assert!(!running);
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

    #[tokio::test]
    async fn a_bed_from_before_a_reboot_is_removed_and_nobody_who_has_its_pids_now_is_harmed() {
        let stage = stage();
        let mut child = sleeper();
        let process = ProcessId::of(child.id()).unwrap();
        let own = ProcessId::own().unwrap();
        let bed = bed_of_boot("00000000", own, &stage, &[process]);

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
        assert!(!bed.exists());
    }

    #[test]
    fn only_names_of_the_exact_form_are_beds() {
        let of = |name: &'static str| owner(OsStr::new(name));
        assert_eq!(
            of("etcd-operator-bed-0a1b2c3d-12-345-0"),
            Some(("0a1b2c3d", ProcessId::recorded(12, 345)))
        );
        for other in [
            "etcd-operator-bed-0a1b2c3d-12-345",
            "etcd-operator-bed-0a1b2c3d-12-345-0-1",
            "etcd-operator-bed-0a1b2c3d-x-1-0",
            "etcd-operator-bed-12-345-0",
            "bed-1-2-3",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
