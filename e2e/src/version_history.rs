//! Which versions of etcd the pods of a cluster ran, in the order in which the API server showed it: whether an upgrade
//! took the way that it should have taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, watcher};
use kube::{Client, ResourceExt};
use tokio::task::JoinSet;

use crate::components::EtcdVersion;
use crate::deadline::until;
use crate::scenario::is_ready;

/// The container of a member's pod that runs etcd.
const CONTAINER: &str = "etcd";
/// How long the first list of pods may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A watch of the pods of one cluster. Dropping it ends the watch.
#[derive(Debug)]
pub struct VersionHistory {
    sightings: Arc<Mutex<Vec<Sighting>>>,
    _watch: JoinSet<()>,
}

/// A pod as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sighting {
    at: Instant,
    pod: String,
    version: String,
    is_ready: bool,
}

impl VersionHistory {
    /// Watches the pods of a cluster from now on; returns once those that are there have been seen.
    pub async fn watch(client: Client, namespace: &str, cluster: &str) -> Result<Self> {
        let pods = Api::<Pod>::namespaced(client, namespace);
        let config = Config::default().labels(&format!("etcd_cluster={cluster}"));
        let sightings = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&sightings);
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            let mut stream = watcher(pods, config).default_backoff().applied_objects().boxed();
            while let Some(found) = stream.next().await {
                // A watch that broke begins anew by itself.
                let sighting = found.ok().as_ref().and_then(Sighting::of);
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(sighting);
            }
        });
        let history = Self {
            sightings,
            _watch: watch,
        };
        until("the pods of the cluster are seen", LIMIT, || async {
            Ok((!history.sightings().is_empty()).then_some(()))
        })
        .await?;
        Ok(history)
    }

    /// An error unless this many members ran these versions one after the other, and no other ones: before the first pod
    /// of a version appeared, every member had been ready with the version before it.
    pub fn went_through(&self, way: &[EtcdVersion], members: usize) -> Result<()> {
        let way: Vec<&str> = way.iter().map(|version| version.number()).collect();
        went_through(&self.sightings(), &way, members)
    }

    /// How long all members but the last had been ready with a version when the last one's pod of that version appeared.
    pub fn wait_before_last(&self, version: EtcdVersion, members: usize) -> Result<Duration> {
        wait_before_last(&self.sightings(), version.number(), members)
    }

    /// How many pods of this version there have been, ready or not.
    pub fn pods_of(&self, version: EtcdVersion) -> usize {
        let sightings = self.sightings();
        let of_version = sightings.iter().filter(|one| one.version == version.number());
        of_version.map(|one| &one.pod).collect::<BTreeSet<_>>().len()
    }

    fn sightings(&self) -> Vec<Sighting> {
        self.sightings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Sighting {
    fn of(pod: &Pod) -> Option<Self> {
        Some(Self {
            at: Instant::now(),
            pod: pod.name_any(),
            version: image_version(pod)?.to_owned(),
            is_ready: is_ready(pod) && pod.metadata.deletion_timestamp.is_none(),
        })
    }
}

/// The version in the tag of the image that a member's pod runs etcd from.
pub fn image_version(pod: &Pod) -> Option<&str> {
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let etcd = containers.find(|container| container.name == CONTAINER)?;
    let (_, tag) = etcd.image.as_deref()?.rsplit_once(":v")?;
    Some(tag)
}

fn went_through(sightings: &[Sighting], way: &[&str], members: usize) -> Result<()> {
    for one in sightings {
        ensure!(
            way.contains(&&*one.version),
            "{} ran etcd {}, which is not on the way {way:?}",
            one.pod,
            one.version
        );
    }
    for step in way.windows(2) {
        let begin = sightings.iter().position(|one| one.version == step[1]);
        let begin = begin.with_context(|| format!("no pod ran etcd {}", step[1]))?;
        let served: BTreeSet<&str> = ready(&sightings[..begin], step[0]).map(|one| &*one.pod).collect();
        ensure!(
            served.len() == members,
            "{} became etcd {} when only {served:?} had served with {}",
            sightings[begin].pod,
            step[1],
            step[0]
        );
    }
    let last: BTreeMap<&str, &Sighting> = sightings.iter().map(|one| (&*one.pod, one)).collect();
    let target = way.last().context("a way without versions")?;
    let arrived = last.values().filter(|one| one.is_ready && one.version == *target);
    ensure!(
        arrived.count() == members,
        "not all {members} members are ready with etcd {target}: {:?}",
        last.values()
    );
    Ok(())
}

fn wait_before_last(sightings: &[Sighting], version: &str, members: usize) -> Result<Duration> {
    let mut pods = BTreeSet::new();
    let last = sightings
        .iter()
        .position(|one| one.version == version && pods.insert(&one.pod) && pods.len() == members);
    let last = last.with_context(|| format!("fewer than {members} pods ran etcd {version}"))?;
    let mut served = BTreeMap::new();
    for one in ready(&sightings[..last], version) {
        served.entry(&one.pod).or_insert(one.at);
    }
    ensure!(
        served.len() + 1 == members,
        "{} became etcd {version} when only {:?} served with it",
        sightings[last].pod,
        served.keys()
    );
    let all = served.values().max().context("one member has no others")?;
    Ok(sightings[last].at.duration_since(*all))
}

fn ready<'a>(sightings: &'a [Sighting], version: &'a str) -> impl Iterator<Item = &'a Sighting> {
    sightings
        .iter()
        .filter(move |one| one.is_ready && one.version == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: [&str; 3] = ["3.5.21", "3.5.35", "3.6.16"];

    /// `POD VERSION` for a pod that is ready, `POD VERSION -` for one that is not; each a second after the one before.
    fn sightings(lines: &[&str]) -> Vec<Sighting> {
        let start = Instant::now();
        let seen = lines.iter().zip(0..).map(|(line, second)| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Sighting {
                at: start + Duration::from_secs(second),
                pod: words[0].to_owned(),
                version: words[1].to_owned(),
                is_ready: words.len() == 2,
            }
        });
        seen.collect()
    }

    fn complaint(lines: &[&str]) -> String {
        went_through(&sightings(lines), &WAY, 2).unwrap_err().to_string()
    }

    const GOOD: [&str; 8] = [
        "c-0 3.5.21",
        "c-1 3.5.21",
        "c-0 3.5.35 -",
        "c-0 3.5.35",
        "c-1 3.5.35",
        "c-1 3.6.16",
        "c-0 3.6.16 -",
        "c-0 3.6.16",
    ];

    #[test]
    fn a_walk_in_which_every_member_serves_on_every_version_is_good() {
        assert!(went_through(&sightings(&GOOD), &WAY, 2).is_ok());
    }

    #[test]
    fn a_step_that_begins_before_all_have_served_on_the_one_before_is_found() {
        let said = complaint(&[
            "c-0 3.5.21",
            "c-1 3.5.21",
            "c-0 3.5.35",
            "c-1 3.5.35 -",
            "c-0 3.6.16",
        ]);
        assert!(said.starts_with("c-0 became etcd 3.6.16 when only"), "{said}");
    }

    #[test]
    fn a_version_beside_the_way_and_one_that_was_left_out_are_found() {
        let said = complaint(&["c-0 3.5.21", "c-1 3.4.44"]);
        assert!(said.contains("c-1 ran etcd 3.4.44"), "{said}");
        let said = complaint(&["c-0 3.5.21", "c-1 3.5.21", "c-0 3.6.16"]);
        assert!(said.contains("no pod ran etcd 3.5.35"), "{said}");
    }

    #[test]
    fn a_walk_that_has_not_ended_is_found() {
        let said = complaint(&GOOD[..7]);
        assert!(said.contains("ready with etcd 3.6.16"), "{said}");
    }

    #[test]
    fn the_wait_before_the_last_member_is_counted_from_the_last_of_the_others() {
        let seen = sightings(&[
            "c-0 3.5.35",
            "c-0 3.6.16 -",
            "c-0 3.6.16",
            "c-1 3.6.16",
            "c-0 3.6.16",
            "c-2 3.5.35",
            "c-2 3.6.16 -",
            "c-2 3.6.16",
        ]);
        let wait = wait_before_last(&seen, "3.6.16", 3).unwrap();
        assert_eq!(wait, Duration::from_secs(3));
        assert!(wait_before_last(&seen[..6], "3.6.16", 3).is_err());
        let unready = sightings(&["c-0 3.6.16", "c-1 3.6.16 -", "c-2 3.6.16"]);
        assert!(wait_before_last(&unready, "3.6.16", 3).is_err());
    }
}
