//! The same restore by an EtcdRestore, and when it was how far, as its status tells everybody.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use etcd_operator_api::EtcdRestoreStatus;
use etcd_operator_api::backup::BackupRecord;
use etcd_operator_api::restore::MemberRestoreStatus;
use etcd_operator_e2e::deadline::until;
use serde_json::{Value, json};

use super::LONG;
use super::by_hand::{Hand, answering};
use crate::cluster::tenant::Tenant;
use crate::restore::seen::{Restore, is_over};

/// What a restore goes through, in order; each ends when the next begins.
pub const STAGES: [&str; 7] = [
    "verified",
    "old pods stopped, new ones begun",
    "downloaded",
    "restored",
    "three answer",
    "clients let in",
    "pods made anew",
];
/// The last stage in which the data of before are served.
const VERIFIED: usize = 0;
/// The last one before members download.
const BEGUN: usize = 1;
/// The last one in which they work each for itself.
const RESTORED: usize = 3;
/// The last one before the data are compared.
const ANSWERING: usize = 4;
/// The last one before clients are let in.
const COMPARED: usize = 5;

/// What a member says that has the object.
const HAVE: [&str; 3] = ["Fetched", "Preparing", "Prepared"];

/// When each stage was over, from the EtcdRestore on.
#[derive(Clone, Copy, Debug)]
pub struct Times([Duration; STAGES.len()]);

impl Times {
    /// How long each stage took.
    pub fn of(&self, stage: usize) -> Duration {
        let before = stage
            .checked_sub(1)
            .map_or(Duration::ZERO, |before| self.0[before]);
        self.0[stage].saturating_sub(before)
    }

    fn between(&self, one: usize, other: usize) -> Duration {
        self.0[other].saturating_sub(self.0[one])
    }

    /// From the data of before being taken out of service until three members answer.
    pub fn serving(&self) -> Duration {
        self.between(VERIFIED, ANSWERING)
    }

    /// The same until clients are let in.
    pub fn open(&self) -> Duration {
        self.between(VERIFIED, COMPARED)
    }

    /// What members do that takes the longer the more there is: the download, and etcd's program.
    pub fn work(&self) -> Duration {
        self.between(BEGUN, RESTORED)
    }
}

/// The moments that a status tells of.
#[derive(Default)]
struct Seen([Option<Instant>; 4]);

impl Seen {
    fn note(&mut self, status: &EtcdRestoreStatus) {
        let phase = status.phase.as_deref().unwrap_or_default();
        let members = status.members.as_deref().unwrap_or_default();
        let are = |words: &[&str], member: &MemberRestoreStatus| {
            let phase = member.phase.as_deref();
            phase.is_some_and(|phase| words.contains(&phase))
        };
        let is_away = !["", "Verifying", "Waiting"].contains(&phase);
        let is_committed = status.committed;
        let is_here =
            is_committed || (phase == "Preparing" && members.iter().all(|member| are(&HAVE, member)));
        let fetches = is_here || (is_away && members.iter().any(|member| are(&["Fetching"], member)));
        let now = Instant::now();
        let so_far = [is_away, fetches, is_here, is_committed];
        for (moment, is_so) in self.0.iter_mut().zip(so_far) {
            if is_so {
                moment.get_or_insert(now);
            }
        }
    }
}

/// A cluster with a little of its own is rolled back to the backup.
pub async fn restored(
    tenant: &Tenant,
    hand: &Hand<'_>,
    name: &str,
    size: &str,
    record: &BackupRecord,
) -> Result<Times> {
    let mut spec = tenant.spec(3);
    spec["storage"]["size"] = json!(size);
    spec["etcd"] = json!({"quotaBackendBytes": "8Gi"});
    tenant.apply(&spec).await?;
    tenant.converged(3).await?;
    tenant.put("before").await?;
    let clients = tenant.endpoint().await?;
    hand.settle().await?;

    let seen = Mutex::new(Seen::default());
    let entry = tenant.stage().cluster().nodes()[0].entry();
    let restore = Restore::named(tenant.stage(), name).patient(LONG);
    let from = Instant::now();
    restore
        .apply(&json!({"etcdCluster": {"name": "c"}, "source": {"backup": {"name": "large"}}}))
        .await?;
    let ends = restore.says("is over", |status| {
        seen.lock().unwrap_or_else(PoisonError::into_inner).note(status);
        is_over(status)
    });
    let serves = async {
        restore
            .says("is committed", |status| status.committed || is_over(status))
            .await?;
        let mut endpoints = Vec::new();
        for ordinal in 0..3 {
            let address = tenant.stage().address(&tenant.pod(ordinal)).await?;
            endpoints.push(format!("http://{address}:2379"));
        }
        // Clients are let in once a quorum serves what was compared: maybe before the last member answers.
        let three = async { answering(entry, &endpoints).await.map(|()| from.elapsed()) };
        let open = async {
            let clients = std::slice::from_ref(&clients);
            answering(entry, clients).await.map(|()| from.elapsed())
        };
        tokio::try_join!(three, open)
    };
    let (status, (three, open)) = tokio::try_join!(ends, serves)?;
    let over = from.elapsed();
    ensure!(status.succeeded && status.committed, "{status:?}");
    shows(tenant, record).await?;

    let mut times = [Duration::ZERO; STAGES.len()];
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (time, moment) in times.iter_mut().zip(seen.0) {
        *time = moment.context("a stage that nobody saw")?.duration_since(from);
    }
    times[ANSWERING..].copy_from_slice(&[three, open, over]);
    restore.delete(tenant).await?;
    tenant.delete().await?;
    tenant
        .kubectl(&["delete", "pvc", "--selector=etcd_cluster=c"])
        .await?;
    Ok(Times(times))
}

/// What was restored is what was asked for.
async fn shows(tenant: &Tenant, record: &BackupRecord) -> Result<()> {
    let said = tenant
        .etcdctl(&["get", "", "--prefix", "--limit=1", "--write-out=json"])
        .await?;
    let answer: Value = serde_json::from_str(&said)?;
    let revision = answer["header"]["revision"].as_i64();
    ensure!(revision >= record.revision, "{said}");
    let said = tenant.etcdctl(&["get", "before"]).await?;
    ensure!(said.trim().is_empty(), "a key of before the restore: {said}");
    Ok(())
}

/// Waits until no disk is left but the store's: the next to be measured has the room and the quiet.
pub async fn rest(tenant: &Tenant) -> Result<()> {
    until("the disks are gone", LONG, || async {
        let said = tenant
            .kubectl(&["get", "pv", "--output=jsonpath={.items[*].spec.claimRef.name}"])
            .await?;
        Ok((said.trim() == "objects").then_some(()))
    })
    .await
}
