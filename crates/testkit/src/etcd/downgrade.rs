//! Downgrades by request: what is refused, and how the version of a member's files follows the cluster version. A member says
//! that it has lowered it before that is on its disk.

use std::time::Duration;

use etcd_operator_etcd::error::{Cause, Error};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::version::Version;

use super::disk::DiskId;
use super::line::{Line, gone, no};
use super::log::Change;
use super::process::ProcessId;
use super::truth::StepKind;
use super::versions::{cluster_version, storage_version};
use super::world::{Event, World};

/// How often a member compares the version of its files with the cluster version.
const MONITOR_INTERVAL: Duration = Duration::from_secs(4);
/// How often a database is written to its disk.
const COMMIT_INTERVAL: Duration = Duration::from_millis(100);

impl World {
    /// The version of the files on a disk.
    pub(super) fn stored_version(&self, disk: DiskId) -> Option<Version> {
        self.disks.get(&disk)?.content.data.as_ref()?.storage.clone()
    }

    /// The version of a member's files rises with the cluster version, and is lowered to it by and by.
    pub(super) fn follow_cluster_version(&mut self, process: ProcessId) {
        let Some(running) = self.running_mut(process) else {
            return;
        };
        let wanted = storage_version(&running.applied);
        if wanted < running.storage {
            let wait = self.chance.between(Duration::ZERO, MONITOR_INTERVAL);
            self.after(wait, Event::LowerStorage(process));
            return;
        }
        running.storage = wanted;
        self.write_storage(process);
    }

    pub(crate) fn lower_storage(&mut self, process: ProcessId) {
        let Some(running) = self.running_mut(process) else {
            return;
        };
        running.storage = storage_version(&running.applied);
        let lowered = running.storage.clone();
        self.note(process, format_args!("has files of {lowered}"));
        self.after(COMMIT_INTERVAL, Event::WriteStorage(process));
        self.changed();
    }

    pub(crate) fn write_storage(&mut self, process: ProcessId) {
        let Some(running) = self.running(process) else {
            return;
        };
        let storage = running.storage.clone();
        let disk = self.processes[&process].start.disk;
        let data = self
            .disks
            .get_mut(&disk)
            .and_then(|disk| disk.content.data.as_mut());
        if let Some(data) = data {
            data.storage = Some(storage);
        }
    }

    /// Whether a downgrade to a version can be enabled.
    fn may_downgrade(&self, process: ProcessId, target: &Version) -> Result<(), Cause> {
        self.is_no_learner(process)?;
        if !self.has(process, Feature::DowngradeByRequest) {
            return Err(no(Rejection::Unsupported));
        }
        let applied = &self.running(process).ok_or_else(gone)?.applied;
        if applied.downgrade.is_some() {
            return Err(no(Rejection::DowngradeEnabled));
        }
        let agreed = applied.cluster_version.as_ref();
        let is_next_lower =
            agreed.is_some_and(|agreed| (agreed.major, agreed.minor) == (target.major, target.minor + 1));
        if is_next_lower {
            Ok(())
        } else {
            Err(no(Rejection::BadDowngradeTarget))
        }
    }
}

impl Line {
    pub(super) async fn validated_downgrade(&self, target: &Version) -> Result<(), Error> {
        let validate = |process| async move { self.etcds.with(|world| world.may_downgrade(process, target)) };
        self.ask("DowngradeValidate", self.limits.call, validate).await
    }

    pub(super) async fn enabled_downgrade(&self, target: &Version) -> Result<(), Error> {
        let enable = |process| async move {
            self.judged(process, StepKind::EnableDowngrade(target.clone()));
            self.etcds.with(|world| world.may_downgrade(process, target))?;
            let change = Change::Downgrade(Some(cluster_version(target)));
            self.etcds.agreed(process, change).await
        };
        self.ask("DowngradeEnable", self.limits.call, enable).await
    }

    pub(super) async fn canceled_downgrade(&self) -> Result<(), Error> {
        let cancel = |process| async move {
            self.judged(process, StepKind::CancelDowngrade);
            let has_answer = self.etcds.with(|world| {
                world.is_no_learner(process)?;
                let has_answer = world.has(process, Feature::DowngradeByRequest);
                let applied = &world.running(process).ok_or_else(gone)?.applied;
                if !has_answer && applied.downgrade.is_none() {
                    return Err(no(Rejection::NoDowngrade));
                }
                Ok::<bool, Cause>(has_answer)
            })?;
            self.etcds.agreed(process, Change::Downgrade(None)).await?;
            if !has_answer {
                // 3.5 does it and does not say so.
                std::future::pending::<()>().await;
            }
            Ok(())
        };
        self.ask("DowngradeCancel", self.limits.call, cancel).await
    }
}
