//! One disk: a sparse file with an XFS in it, mounted in the hub where every node sees it. It is full when it is
//! full, a sync reaches the file, and it grows while in use. What is on it is cached once, as on any disk, and not once more
//! as a file.
//!
//! Nothing of Kubernetes is known here.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::chronicle::Chronicle;
use crate::command;
use crate::namespaces::Entry;

/// The smallest XFS there is.
pub const SMALLEST: u64 = 300 << 20;

/// A file of a disk that takes what room is left.
const FILLER: &str = "bed-filler";

/// A mounted disk.
#[derive(Clone, Debug)]
pub struct Disk {
    hub: Entry,
    image: PathBuf,
    mount: PathBuf,
    chronicle: Chronicle,
}

impl Disk {
    /// Names a disk; whether there is one is for its methods to find out.
    pub(super) fn at(hub: Entry, images: &Path, mounts: &Path, name: &str, chronicle: &Chronicle) -> Self {
        Self {
            hub,
            image: images.join(format!("{name}.xfs")),
            mount: mounts.join(name),
            chronicle: chronicle.clone(),
        }
    }

    /// Makes and mounts it.
    pub(super) async fn make(&self, bytes: u64) -> Result<()> {
        let file =
            File::create(&self.image).with_context(|| format!("cannot make {}", self.image.display()))?;
        file.set_len(bytes.max(SMALLEST))
            .context("cannot size the file of a disk")?;
        let mut format = Command::new("mkfs.xfs");
        format.args(["-q", "-f"]).arg(&self.image);
        command::succeed(format, "").await?;
        fs::create_dir_all(&self.mount).with_context(|| format!("cannot make {}", self.mount.display()))?;
        let mut mount = self.hub.command("mount")?;
        mount.args(["-o", "loop"]).arg(&self.image).arg(&self.mount);
        command::succeed(mount.into(), "").await?;
        let mut direct = Command::new("losetup");
        direct.arg("--direct-io=on").arg(self.device().await?);
        // Where the file lies on what cannot do that, a disk is only slower.
        if let Err(error) = command::succeed(direct, "").await {
            self.note(&format!("it is cached twice: {error:#}"));
        }
        fs::set_permissions(self.root(), Permissions::from_mode(0o777)).context("cannot open a disk to pods")
    }

    /// Where nodes have it.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// Its size.
    pub fn bytes(&self) -> Result<u64> {
        let metadata = fs::metadata(&self.image).context("the disk has no file")?;
        Ok(metadata.len())
    }

    /// Makes it larger while it is in use.
    pub(super) async fn grow(&self, bytes: u64) -> Result<()> {
        let file = File::options().write(true).open(&self.image)?;
        file.set_len(bytes).context("cannot size the file of a disk")?;
        let device = self.device().await?;
        let mut again = Command::new("losetup");
        again.args(["--set-capacity", &device]);
        command::succeed(again, "").await?;
        let mut grow = self.hub.command("xfs_growfs")?;
        grow.arg(&self.mount);
        command::succeed(grow.into(), "").await?;
        Ok(())
    }

    /// Unmounts and deletes it. What still has it open keeps it until then.
    pub(super) async fn remove(&self) -> Result<()> {
        if is_mounted(self.hub, &self.mount)? {
            let mut unmount = self.hub.command("umount")?;
            unmount.arg("--lazy").arg(&self.mount);
            command::succeed(unmount.into(), "").await?;
        }
        for outcome in [fs::remove_dir(&self.mount), fs::remove_file(&self.image)] {
            match outcome {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).context("cannot remove a disk");
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Its loop device, such as `/dev/loop3`.
    pub async fn device(&self) -> Result<String> {
        let mut list = Command::new("losetup");
        list.args(["--noheadings", "--output=NAME", "--associated"])
            .arg(&self.image);
        let device = command::succeed(list, "").await?.trim().to_owned();
        if device.is_empty() {
            bail!("{} is on no loop device", self.image.display());
        }
        Ok(device)
    }

    // What can happen to what is on it.

    /// Deletes everything.
    pub fn wipe(&self) -> Result<()> {
        self.note("everything is deleted");
        for entry in fs::read_dir(self.root()).context("cannot list a disk")? {
            let path = entry.context("cannot list a disk")?.path();
            if path.is_dir() {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            }
            .with_context(|| format!("cannot delete {}", path.display()))?;
        }
        Ok(())
    }

    /// Puts a copy of all that is on it onto another disk, in the place of what is there. Files keep owners and times, as
    /// they do in a restored snapshot; whoever writes to either disk has to stand still meanwhile.
    pub async fn copy_to(&self, other: &Self) -> Result<()> {
        other.wipe()?;
        self.note("all of it is copied");
        archive(&self.root().join("."), &other.root()).await
    }

    /// Copies one directory over that of its name on another disk, file over file: what is there alone stays.
    pub async fn copy_over(&self, name: &str, other: &Self) -> Result<()> {
        self.note(&format!("{name} is copied"));
        archive(&self.root().join(name).join("."), &other.root().join(name)).await
    }

    /// Inverts bytes of a file, where it is.
    pub fn flip(&self, file: &str, offset: u64, count: usize) -> Result<()> {
        let path = self.path(file)?;
        self.note(&format!("{count} bytes of {file} at {offset} are inverted"));
        let mut open = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let mut bytes = vec![0; count];
        open.seek(SeekFrom::Start(offset))?;
        open.read_exact(&mut bytes)
            .with_context(|| format!("{} has no {count} bytes at {offset}", path.display()))?;
        for byte in &mut bytes {
            *byte = !*byte;
        }
        open.seek(SeekFrom::Start(offset))?;
        open.write_all(&bytes)?;
        open.sync_all().context("cannot sync the damage")
    }

    /// Cuts a file off.
    pub fn cut(&self, file: &str, bytes: u64) -> Result<()> {
        let path = self.path(file)?;
        self.note(&format!("{file} is cut off after {bytes} bytes"));
        let open = File::options()
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        if open.metadata()?.len() < bytes {
            bail!("{} is no longer than {bytes} bytes", path.display());
        }
        open.set_len(bytes)?;
        open.sync_all().context("cannot sync the damage")
    }

    /// Takes all room that is left.
    pub fn fill(&self) -> Result<()> {
        self.note("it is filled up");
        let mut filler = File::options()
            .create(true)
            .append(true)
            .open(self.root().join(FILLER))
            .context("cannot make a filler")?;
        for size in [1 << 20, 4096, 1] {
            let block = vec![0; size];
            loop {
                match filler.write_all(&block).and_then(|()| filler.sync_data()) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error).context("cannot fill a disk"),
                }
            }
        }
        Ok(())
    }

    /// Gives the room back.
    pub fn unfill(&self) -> Result<()> {
        self.note("it has room again");
        fs::remove_file(self.root().join(FILLER)).context("the disk was not filled")
    }

    /// What a file holds.
    pub fn read(&self, file: &str) -> Result<Vec<u8>> {
        let path = self.path(file)?;
        fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Names in its uppermost directory, in order.
    pub fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.root()).context("cannot list a disk")?;
        let mut names: Vec<String> = entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    fn note(&self, what: &str) {
        let name = self.mount.file_name().unwrap_or_default().to_string_lossy();
        self.chronicle.note(format_args!("disk {name}: {what}"));
    }

    fn root(&self) -> PathBuf {
        self.hub.path(&self.mount)
    }

    /// Damage stays on the disk: a path that leads out of it is refused.
    pub(crate) fn path(&self, file: &str) -> Result<PathBuf> {
        let inside = Path::new(file)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !inside {
            bail!("{file} is not on the disk");
        }
        Ok(self.root().join(file))
    }
}

/// Copies with owners and times.
async fn archive(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--sparse=auto"]).arg(from).arg(to);
    command::succeed(copy, "").await?;
    Ok(())
}

fn is_mounted(hub: Entry, mount: &Path) -> Result<bool> {
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", hub.keeper().pid()))
        .context("cannot read the hub's mounts")?;
    let mount = mount.to_str().context("the bed's path is not UTF-8")?;
    Ok(mounts.lines().any(|line| line.split(' ').nth(4) == Some(mount)))
}
