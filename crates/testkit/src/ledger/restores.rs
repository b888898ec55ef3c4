//! What a restore allows, and what it owes: the cluster of before gives way once that is written down, clients are never
//! led to two lives of the data at once, and what is served in the end is the snapshot and nothing that came after it.

use std::collections::{BTreeMap, BTreeSet};

use etcd_operator_api::contract::{self, RestoreIntent};
use etcd_operator_api::names::{ANNOTATION_RESTORE, LABEL_CLUSTER};
use etcd_operator_etcd::id::ClusterId;
use serde_json::Value;

use super::{Acked, Ledger, Promise, steps::Request};
use crate::etcd::{Keys, Snapshot, Truth};

const API: &str = "etcd.database.coreos.com/v1beta2";
const KIND: &str = "EtcdCluster";
/// The word of a member's command that says for which life of the data its pod was made.
const INCARNATION: &str = "--incarnation=";

/// What a cluster serves since it was restored.
#[derive(Clone, Debug)]
pub(crate) struct Restored {
    /// The cluster that began with it.
    cluster: ClusterId,
    keys: BTreeMap<String, String>,
}

/// What a cluster owes to those who read.
#[derive(Debug)]
pub(super) struct Owed {
    acked: Vec<Acked>,
    restored: Option<Restored>,
}

/// Where clients have been led so far.
#[derive(Debug, Default)]
struct Doors {
    seen: Vec<ClusterId>,
    is_told: bool,
}

fn incarnation_of(pod: &Value) -> Option<i64> {
    let words = pod["spec"]["containers"][0]["command"].as_array()?;
    let words = words.iter().filter_map(Value::as_str);
    words
        .into_iter()
        .find_map(|word| word.strip_prefix(INCARNATION)?.parse().ok())
}

impl Ledger {
    /// From now on a cluster serves what was restored: what the one of before acknowledged is gone, but for that.
    pub fn expect_restored(&self, namespace: &str, cluster: &str, snapshot: &Snapshot, id: ClusterId) {
        let restored = Restored {
            cluster: id,
            keys: snapshot.keys(),
        };
        self.with(|state| state.restored.insert(format!("{namespace}/{cluster}"), restored));
    }

    /// What every member that answers serves.
    pub async fn served(&self, namespace: &str, cluster: &str) -> Vec<(ClusterId, i64, Keys)> {
        let mut served = Vec::new();
        for host in self.0.machine.endpoints(namespace, cluster) {
            if let Ok((position, keys)) = self.connect(&host).all().await {
                served.push((position.cluster, position.revision.0, keys));
            }
        }
        served
    }

    /// The newest revision that any cluster acknowledged but this one.
    pub fn newest_of_others(&self, cluster: ClusterId) -> i64 {
        self.with(|state| {
            let others = state.revisions.iter().filter(|(id, _)| **id != cluster);
            others.map(|(_, revision)| *revision).max().unwrap_or(0)
        })
    }

    /// Reads everything through each member, and judges it by what must be there and what must not. How many answered.
    pub async fn verify_all(&self, namespace: &str, cluster: &str) -> usize {
        let owed = self.owed(namespace, cluster);
        let served = self.served(namespace, cluster).await;
        for (id, _, keys) in &served {
            self.judge_keys(&owed, *id, keys);
        }
        served.len()
    }

    /// What must be found by whoever reads from now on.
    pub(super) fn owed(&self, namespace: &str, cluster: &str) -> Owed {
        let cluster = format!("{namespace}/{cluster}");
        self.with(|state| Owed {
            acked: state.acked.get(&cluster).cloned().unwrap_or_default(),
            restored: state.restored.get(&cluster).cloned(),
        })
    }

    /// Judges what one member serves.
    pub(super) fn judge_keys(&self, Owed { acked, restored }: &Owed, served_by: ClusterId, keys: &Keys) {
        let found: BTreeMap<&str, &str> = keys
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let at = self.0.etcds.now();
        let is_owed = |acked: &&Acked| {
            restored
                .as_ref()
                .is_none_or(|restored| acked.cluster == restored.cluster)
        };
        let is_lost = |acked: &&Acked| found.get(acked.key.as_str()) != Some(&acked.value.as_str());
        let lost: Vec<&Acked> = acked.iter().filter(is_owed).filter(is_lost).collect();
        if let Some(first) = lost.first() {
            let what = format!(
                "{} of {} acknowledged writes are gone, the first is {} (acknowledged by {}, read from {served_by})",
                lost.len(),
                acked.len(),
                first.key,
                first.cluster,
            );
            self.blame(at, Promise::S1, what);
        }
        let Some(restored) = restored else { return };
        let is_missing = |(key, value): &(&String, &String)| found.get(key.as_str()) != Some(&value.as_str());
        if let Some((key, _)) = restored.keys.iter().find(is_missing) {
            let what = format!("{key} of the snapshot is not served by {served_by}");
            self.blame(at, Promise::S7, what);
        }
        let is_of_before = |acked: &&Acked| !is_owed(acked) && !restored.keys.contains_key(&acked.key);
        if let Some(after) = acked
            .iter()
            .filter(is_of_before)
            .find(|acked| found.contains_key(acked.key.as_str()))
        {
            let what = format!(
                "{} was written after the snapshot, and {served_by} serves it",
                after.key
            );
            self.blame(at, Promise::S7, what);
        }
    }

    /// The UID of the restore with which a cluster began, if it began with one.
    pub fn restored_by(&self, cluster: ClusterId) -> Option<String> {
        self.with(|state| state.made_by.get(&cluster).cloned())
    }

    /// Notes what the status of a cluster tells of restores.
    pub(super) fn note_commits(&self, request: &Request) {
        let fake = self.0.machine.fake();
        if let Some(stored) = fake.stored_one(API, KIND, &request.namespace, &request.name) {
            self.note_restore(&stored["status"]["restore"]);
        }
    }

    /// Notes which cluster began with a restore, and those whose data are past since it was committed: the one of before,
    /// and what other restores had put there.
    fn note_restore(&self, restore: &Value) {
        let known = |field: &str| restore[field].as_str()?.parse::<ClusterId>().ok();
        let made = known("clusterID");
        self.with(|state| {
            if let (Some(made), Some(uid)) = (made, restore["uid"].as_str()) {
                state.made_by.insert(made, uid.to_owned());
            }
            if restore["committed"] == true {
                state.past.extend(known("previousClusterID"));
                let others = state.made_by.keys().filter(|other| Some(**other) != made);
                state.past.extend(others);
            }
        });
    }

    /// Whether a restore has taken the place of this cluster for good.
    pub(super) fn is_past(&self, cluster: ClusterId) -> bool {
        self.with(|state| state.past.contains(&cluster))
    }

    /// Whether a pod was made for a life of the data that ends by a restore which is written down. What lives with it
    /// may go only once there is no way back.
    pub(super) fn gives_way(&self, namespace: &str, pod: &str, takes_disk: bool) -> Option<GivingWay> {
        let fake = self.0.machine.fake();
        let pod = fake.stored_one("v1", "Pod", namespace, pod)?;
        let name = pod["metadata"]["labels"][LABEL_CLUSTER].as_str()?;
        let stored = fake.stored_one(API, KIND, namespace, name)?;
        let restore = &stored["status"]["restore"];
        self.note_restore(restore);
        let is_going =
            ["Stopping", "Preparing", "Committed", "Serving"].contains(&restore["phase"].as_str()?);
        let theirs = incarnation_of(&pod)?;
        let is_older = theirs < restore["incarnation"].as_i64()?;
        // Where no cluster of before is recorded, none comes back.
        let has_previous = restore["previousIncarnation"]
            .as_i64()
            .is_some_and(|previous| previous > 0);
        let may = is_going && is_older && (!takes_disk || restore["committed"] == true || !has_previous);
        may.then(|| GivingWay {
            is_of_before: restore["previousIncarnation"] == theirs,
        })
    }

    /// Whether a restore that is written down stops the members of this cluster. Disks that go with their pods may go only
    /// once there is no way back.
    pub(super) fn is_stopped_by_restore(
        &self,
        request: &Request,
        cluster: ClusterId,
        takes_disk: bool,
    ) -> bool {
        let fake = self.0.machine.fake();
        let Some(stored) = fake.stored_one(API, KIND, &request.namespace, &request.name) else {
            return false;
        };
        let restore = &stored["status"]["restore"];
        let is_stopping = ["Stopping", "Preparing"]
            .iter()
            .any(|phase| restore["phase"] == *phase);
        let is_previous = restore["previousClusterID"] == cluster.to_string();
        is_stopping && is_previous && (!takes_disk || restore["committed"] == true)
    }

    /// Watches from now on where the Service for clients leads, and that no two lives of the data can agree at once.
    pub fn guard_doors(&self, namespace: &str, cluster: &str) {
        let (ledger, namespace, cluster) = (self.clone(), namespace.to_owned(), cluster.to_owned());
        tokio::spawn(async move {
            let mut doors = Doors::default();
            let mut objects = ledger.0.machine.fake().changes();
            let mut members = ledger.0.etcds.shapes();
            loop {
                objects.update();
                members.update();
                if let Some(what) = ledger.look_at_doors(&namespace, &cluster, &mut doors)
                    && !std::mem::replace(&mut doors.is_told, true)
                {
                    ledger.blame(ledger.0.etcds.now(), Promise::S7, what);
                }
                tokio::select! {
                    biased;
                    _ = objects.changed() => {}
                    _ = members.changed() => {}
                }
            }
        });
    }

    fn look_at_doors(&self, namespace: &str, cluster: &str, doors: &mut Doors) -> Option<String> {
        let machine = &self.0.machine;
        let open: BTreeSet<String> = machine
            .endpoints(namespace, &format!("{cluster}-client"))
            .into_iter()
            .collect();
        let behind = machine
            .pods()
            .into_iter()
            .filter(|pod| open.contains(&pod.address));
        let behind = behind.filter_map(|pod| self.0.etcds.cluster_of(pod.process?));
        let behind: BTreeSet<ClusterId> = behind.collect();
        let end = format!(".{cluster}.{namespace}.svc");
        let deciding = self.0.etcds.truth(|truth| deciding(truth, &end));
        if deciding.len() > 1 {
            return Some(format!("two clusters can agree at once: {deciding:?}"));
        }
        if let Some(past) = deciding.iter().find(|id| self.is_past(**id))
            && !self.is_stopping(namespace, cluster)
        {
            return Some(format!(
                "{past} can agree, and a restore has taken its place for good"
            ));
        }
        if behind.len() > 1 {
            return Some(format!(
                "clients are led to two lives of the data at once: {behind:?}"
            ));
        }
        let now = behind
            .into_iter()
            .next()
            .filter(|now| doors.seen.last() != Some(now))?;
        let is_back = doors.seen.contains(&now);
        doors.seen.push(now);
        if is_back {
            return Some(format!("clients are led back to {now}"));
        }
        self.is_early(namespace, cluster, now)
            .then(|| format!("clients are led to {now} before anybody has compared it with the backup"))
    }

    /// Whether what ran before is being stopped: where its data live with the pods there is no way back from there on.
    fn is_stopping(&self, namespace: &str, cluster: &str) -> bool {
        let stored = self.0.machine.fake().stored_one(API, KIND, namespace, cluster);
        stored.is_some_and(|stored| stored["status"]["restore"]["phase"] == "Stopping")
    }

    fn is_early(&self, namespace: &str, cluster: &str, now: ClusterId) -> bool {
        let Some(stored) = self.0.machine.fake().stored_one(API, KIND, namespace, cluster) else {
            return false;
        };
        let restore = &stored["status"]["restore"];
        let asked = stored["metadata"]["annotations"][ANNOTATION_RESTORE].as_str();
        let asked: Option<RestoreIntent> = asked.and_then(|text| contract::read(text.as_bytes()).ok());
        restore["clusterID"] == now.to_string()
            && asked.is_some_and(|asked| {
                let compared = asked.compared_cluster.as_deref();
                restore["uid"] == asked.uid && compared != restore["clusterID"].as_str()
            })
    }
}

/// How a pod gives way to a restore.
pub(super) struct GivingWay {
    /// It is of the cluster of before, and not of an attempt to restore.
    pub(super) is_of_before: bool,
}

/// The clusters at these addresses of which enough voters are well to agree.
fn deciding(truth: &Truth<'_>, end: &str) -> Vec<ClusterId> {
    let clusters = truth.clusters().into_iter();
    let decides = |id: &ClusterId| {
        let voters = truth.voters(*id);
        let is_own = voters
            .iter()
            .flat_map(|voter| &voter.member.peer_urls)
            .any(|url| url.host().ends_with(end));
        let well = voters.iter().filter(|voter| voter.ill_for.is_none()).count();
        is_own && well > voters.len() / 2
    };
    clusters.filter(decides).collect()
}
