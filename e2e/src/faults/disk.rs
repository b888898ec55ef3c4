//! A disk that is slow for one container: the kernel's own throttle on that container's writes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::Container;
use crate::cgroup;
use crate::chronicle::Lasting;
use crate::cluster::Cluster;
use crate::volumes::Disk;

/// A limited rate of writes.
#[derive(Debug)]
pub struct SlowDisk {
    control: PathBuf,
    lift: String,
    lasting: Lasting,
}

impl Cluster {
    /// Lets a container write no more than this many bytes per second to a disk.
    pub async fn slow_disk(
        &self,
        container: &Container,
        disk: &Disk,
        bytes_per_second: u64,
    ) -> Result<SlowDisk> {
        let device = disk.device().await?;
        let number = fs::metadata(&device)
            .with_context(|| format!("cannot look at {device}"))?
            .rdev();
        let device = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let bed = self.control_plane().bed().name();
        let (control, limit, lift) = match cgroup::controller("blkio") {
            Some(hierarchy) => (
                cgroup::find_below(&hierarchy.join(bed), &container.id)
                    .map(|group| group.join("blkio.throttle.write_bps_device")),
                format!("{device} {bytes_per_second}"),
                format!("{device} 0"),
            ),
            None => (
                cgroup::find(bed, &container.id).map(|group| group.join("io.max")),
                format!("{device} wbps={bytes_per_second}"),
                format!("{device} wbps=max"),
            ),
        };
        let control = control.with_context(|| format!("no control group of container {}", container.id))?;
        fs::write(&control, limit).with_context(|| format!("cannot write to {}", control.display()))?;
        let what = format!("{} writes {bytes_per_second} bytes per second", container.what);
        let lasting = Lasting::begun(&self.chronicle(), what);
        let slow = SlowDisk {
            control,
            lift,
            lasting,
        };
        if !slow.bites()? {
            bail!("the kernel did not take a limit for writes to {device}");
        }
        Ok(slow)
    }
}

impl SlowDisk {
    /// Whether the kernel has the limit.
    pub fn bites(&self) -> Result<bool> {
        let limits = fs::read_to_string(&self.control).context("the container's control group is gone")?;
        Ok(limits.lines().any(|line| !line.trim().is_empty()))
    }

    /// Takes the limit away.
    pub fn heal(self) -> Result<()> {
        fs::write(&self.control, &self.lift)
            .with_context(|| format!("cannot write to {}", self.control.display()))?;
        self.lasting.healed();
        Ok(())
    }
}
