//! Clients that live through a restore: one writes and looks without a pause, one watches.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use etcd_operator_e2e::components::{self, Component, EtcdVersion};
use etcd_operator_e2e::deadline::until;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::tenant::{SOON, Tenant};

/// What the keys begin with that the writer writes.
const PREFIX: &str = "written/";
/// A key that is in the backup and was deleted since.
const OF_THE_BACKUP: &str = "before-0";
/// One that was written since.
const OF_THE_OLD: &str = "after-0";

/// What the writer was told.
#[derive(Debug, Default)]
struct Told {
    /// The numbers of the writes that were acknowledged.
    acknowledged: BTreeSet<u64>,
    /// Whether it has seen the restored data.
    has_seen_the_backup: bool,
}

/// One that writes and looks without a pause, by the one address that clients know.
pub struct Writer {
    work: JoinHandle<Result<Told>>,
    /// The number of the write that was acknowledged last.
    last: watch::Receiver<u64>,
    ends: watch::Sender<bool>,
}

impl Writer {
    /// Begins.
    pub async fn start(tenant: &Tenant) -> Result<Self> {
        let (tell, last) = watch::channel(0);
        let (ends, end) = watch::channel(false);
        let (tenant, endpoint) = (tenant.clone(), tenant.endpoint().await?);
        let work = tokio::spawn(async move {
            let mut told = Told::default();
            for number in 1.. {
                if *end.borrow() {
                    break;
                }
                let key = format!("{PREFIX}{number}");
                let put = tenant.etcdctl_at(&endpoint, &["put", &key, &key]).await?;
                if put.status.success() {
                    told.acknowledged.insert(number);
                    tell.send_replace(number);
                }
                let look = ["get", "", "--prefix", "--keys-only"];
                let seen = tenant.etcdctl_at(&endpoint, &look).await?;
                if seen.status.success() {
                    told.judges(&String::from_utf8_lossy(&seen.stdout))?;
                }
            }
            Ok(told)
        });
        Ok(Self { work, last, ends })
    }

    /// The number of the write that was acknowledged last.
    pub fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// Waits until a write is acknowledged that was not before.
    pub async fn goes_on(&self) -> Result<()> {
        let before = self.last();
        until("a write is acknowledged", SOON, || async {
            if self.work.is_finished() {
                bail!("the writer has ended");
            }
            Ok((self.last() > before).then_some(()))
        })
        .await
    }

    /// Ends it. Nothing that was acknowledged up to the given write is there, and all is that was acknowledged since; its
    /// keys are deleted then.
    pub async fn was_rolled_back(self, tenant: &Tenant, gone: u64) -> Result<()> {
        self.ends.send_replace(true);
        let told = self.work.await.context("the writer panicked")??;
        ensure!(told.has_seen_the_backup, "the writer never saw what was restored");
        let said = tenant
            .etcdctl(&["get", PREFIX, "--prefix", "--keys-only"])
            .await?;
        let numbers = said.split_whitespace().filter_map(|key| key.strip_prefix(PREFIX));
        let found: BTreeSet<u64> = numbers.map(str::parse).collect::<Result<_, _>>()?;
        let stayed: Vec<_> = found.range(..=gone).collect();
        ensure!(
            gone > 0 && stayed.is_empty(),
            "{stayed:?} outlived the restore, of {gone}"
        );
        let lost: Vec<_> = told
            .acknowledged
            .range(gone + 1..)
            .filter(|number| !found.contains(number))
            .collect();
        ensure!(
            lost.is_empty(),
            "{lost:?} were acknowledged after the restore, and are lost"
        );
        tenant.note(&format!(
            "{} writes acknowledged, of which the first {gone} are gone",
            told.acknowledged.len()
        ));
        tenant.etcdctl(&["del", PREFIX, "--prefix"]).await?;
        Ok(())
    }
}

impl Told {
    /// What is seen is the old data or the restored, never some of both, and never the old again.
    fn judges(&mut self, keys: &str) -> Result<()> {
        let holds = |key| keys.split_whitespace().any(|one| one == key);
        match (holds(OF_THE_BACKUP), holds(OF_THE_OLD)) {
            (true, false) => self.has_seen_the_backup = true,
            (false, true) if !self.has_seen_the_backup => {}
            (backup, old) => bail!("seen: of the backup {backup}, of before {old}, after that {self:?}"),
        }
        Ok(())
    }
}

/// One that watches everything.
pub struct Watcher {
    child: Child,
    endpoint: String,
}

impl Watcher {
    /// Begins.
    pub async fn start(tenant: &Tenant) -> Result<Self> {
        let endpoint = tenant.endpoint().await?;
        let child = watch(tenant, &endpoint, None).await?;
        Ok(Self { child, endpoint })
    }

    /// It does not go on in silence after what it has missed. The server tells it so while it stops; whoever then goes on from
    /// the revision of before, as clients do, is told that this is compacted.
    pub async fn learns_of_it(self, tenant: &Tenant, last: i64) -> Result<()> {
        let (seen, _) = ended(self.child).await.context("of the old cluster")?;
        ensure!(seen.contains(PREFIX), "it has watched nothing: {seen}");
        let again = watch(tenant, &self.endpoint, Some(last + 1)).await?;
        let (seen, told) = ended(again).await.context("of the restored cluster")?;
        ensure!(
            seen.is_empty() && told.contains("required revision has been compacted"),
            "it goes on from {last}: {seen}{told}"
        );
        Ok(())
    }
}

async fn watch(tenant: &Tenant, endpoint: &str, from: Option<i64>) -> Result<Child> {
    let etcdctl = components::find(Component::Etcdctl(EtcdVersion::V3_6_16)).await?;
    let node = &tenant.stage().cluster().nodes()[0];
    let mut command: Command = node.entry().companion(&etcdctl)?.into();
    let from = from.map(|revision| format!("--rev={revision}"));
    command
        .args(["--endpoints", endpoint, "watch", "--prefix", ""])
        .args(from)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot watch")
}

/// What a watcher has seen, and why it ended.
async fn ended(watcher: Child) -> Result<(String, String)> {
    let output = tokio::time::timeout(SOON, watcher.wait_with_output()).await;
    let output = output.context("a watcher was told nothing")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}
