//! The version of etcd that the pod template of a cluster is to have: the next one on the way to what the spec asks for. Pure.

use etcd_operator_etcd_types::policy::{
    self, DowngradeRefusal, IntermediateVersions, UpgradePath, UpgradeRefusal,
};
use etcd_operator_etcd_types::version::{Minor, Version};

use crate::blocker::Blocker;
use crate::build;
use crate::desired::{Desired, Image};
use crate::observed_state::ObservedCluster;
use crate::plan::{self, ClusterView};

/// The version that the pod template is to have next, and why the spec's version cannot be reached, if so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextVersion {
    /// The version.
    pub version: Version,
    /// Those after it; the last one is what the spec asks for.
    pub later: Vec<Version>,
    /// Why what the spec asks for cannot be reached.
    pub blocker: Option<Blocker>,
    /// After how many entries of the log members take a snapshot of it with this version, whatever the spec says.
    pub snapshot_count: Option<u64>,
}

/// The last minor version that reads log entries of etcd's API v2. The health checks of 3.4 and older write such entries, and 3.6
/// panics on those that lie behind the last snapshot of the log: so members take one often while they run this version on
/// their way, and `log_snapshot` waits for it.
const LAST_WITH_API_V2: Minor = Minor::V3_5;
/// After how many entries they take one: so few slow no writes, while a snapshot after each entry does.
const SNAPSHOT_COUNT_ON_THE_WAY: u64 = 100;

/// The version that the pod template is to have next; `template` is the one that it has. Before the cluster has formed,
/// it is the spec's. After that it moves by one minor version at most, and stays where a step is blocked, or while a
/// pod is stuck or restarts. `observed.wanted` is made from the result and not read.
pub fn next_version(
    observed: &ObservedCluster,
    template: Option<&Version>,
    intermediate: &IntermediateVersions,
) -> NextVersion {
    let target = observed.desired.version(template);
    if !observed.persisted.has_formed() {
        return NextVersion::from(UpgradePath::to(&target));
    }
    let view = ClusterView::new(observed);
    let versions = plan::member_versions(&view);
    // A StatefulSet that was deleted is made again with what its members can start with.
    let Some(template) = template.or_else(|| versions.values().flatten().min()) else {
        return NextVersion::from(UpgradePath::to(&target));
    };
    let target = observed.desired.version(Some(template));
    // Of whom nothing is known may run what its pod is made from.
    let mut running: Vec<_> = versions
        .values()
        .map(|version| version.clone().unwrap_or_else(|| template.clone()))
        .collect();
    if running.is_empty() {
        running.push(template.clone());
    }
    let oldest = view
        .oldest_running_version()
        .filter(|_| plan::is_template_behind(&view));
    // No member restarts only because the number of entries between two snapshots would be another one.
    let snapshot_count = observed
        .set
        .as_ref()
        .filter(|_| Minor::of(template) == Some(LAST_WITH_API_V2))
        .and_then(|set| set.snapshot_count)
        .filter(|count| *count == SNAPSHOT_COUNT_ON_THE_WAY);
    let stays_with = |version: &Version, later: Vec<Version>, blocker: Option<Blocker>| NextVersion {
        version: version.clone(),
        later,
        blocker,
        snapshot_count: snapshot_count.filter(|_| version == template),
    };
    let stays = |later: Vec<Version>, blocker: Option<Blocker>| {
        stays_with(oldest.unwrap_or(template), later, blocker)
    };
    let is_one_image = matches!(observed.desired.image, Image::Whole { .. });
    let is_ephemeral = observed.desired.storage.is_ephemeral();
    let allow_downgrade = observed.desired.updates.allow_downgrade;
    let path = match policy::path(&running, &target, intermediate, allow_downgrade) {
        Ok(path) => path,
        Err(mut refusal) => {
            // Nobody runs the lower minor version of the template, and nobody is to by now.
            let own = running.iter().min();
            let own = own.filter(|_| !is_one_image && plan::is_template_below(&view));
            if is_ephemeral && let UpgradeRefusal::Downgrade { why, .. } = &mut refusal {
                *why = DowngradeRefusal::DataLivesWithPods;
            }
            let blocker = Blocker::VersionNotReachable(refusal);
            return match own {
                Some(own) => stays_with(own, vec![target], Some(blocker)),
                None => stays(vec![target], Some(blocker)),
            };
        }
    };
    let refused = |why: DowngradeRefusal| {
        let refusal = UpgradeRefusal::Downgrade {
            running: running.iter().max().unwrap_or(template).clone(),
            target: target.clone(),
            why,
        };
        stays(vec![target.clone()], Some(Blocker::VersionNotReachable(refusal)))
    };
    let goes_down = running
        .iter()
        .all(|version| Minor::of(version) > Minor::of(&path.next));
    let cluster_version = observed.cluster_version.as_ref();
    let has_risen = cluster_version.is_some_and(|risen| Minor::of(risen) > Minor::of(&path.next));
    if goes_down && is_ephemeral {
        return refused(DowngradeRefusal::DataLivesWithPods);
    }
    if goes_down && !is_one_image && plan::must_stay(&view) {
        let own = running.iter().min().unwrap_or(template);
        return stays_with(template.max(own), path.versions().cloned().collect(), None);
    }
    if !goes_down && has_risen {
        // A member that is away counts as the lower minor version, and runs the newer one.
        return if allow_downgrade {
            stays(vec![target], None)
        } else {
            refused(DowngradeRefusal::NotAllowed)
        };
    }
    if Minor::of(&path.next) == Minor::of(template) && path.rest.is_empty() {
        return NextVersion::from(path);
    }
    if observed.set.is_none() {
        return stays(path.versions().cloned().collect(), None);
    }
    let later = || path.versions().cloned().collect();
    if let Some(blocker) = blocker_on_the_way(&observed.desired, &path) {
        return stays(later(), Some(blocker));
    }
    // What keeps a member from starting is cured first, with the version that the others run. One image for all is of one
    // version, and its step has to wait.
    let is_next = Minor::of(&path.next) > Minor::of(template)
        && running
            .iter()
            .all(|version| Minor::of(version) < Minor::of(&path.next));
    // A pod template that no member could start with first returns to the version that they run: a step up from there passes its
    // gates.
    let own = running.iter().min().filter(|_| plan::is_template_below(&view));
    if let Some(own) = own.filter(|_| is_next && !is_one_image) {
        return stays_with(own, later(), None);
    }
    let is_stuck = || plan::stuck_pods(&view).next().is_some();
    // A member that restarts with the template's version has not told yet that it runs it.
    let is_restarting = || plan::versions_before_restart(&view).next().is_some();
    if (is_next || goes_down) && !is_one_image && (is_stuck() || is_restarting()) {
        return stays(later(), None);
    }
    NextVersion::from(path)
}

/// Why members cannot go through these versions: the spec names one image for all, or one of them does not accept a
/// setting.
fn blocker_on_the_way(desired: &Desired, path: &UpgradePath) -> Option<Blocker> {
    if let (Image::Whole { reference, .. }, false) = (&desired.image, path.rest.is_empty()) {
        return Some(Blocker::OneImageForAllVersions {
            image: reference.clone(),
            versions: path.versions().map(ToString::to_string).collect(),
        });
    }
    path.versions().find_map(|version| {
        let refusal = build::validate_template(desired, version).into_iter().next()?;
        Some(Blocker::SettingUnknownOnTheWay {
            version: version.to_string(),
            refusal,
        })
    })
}

impl From<UpgradePath> for NextVersion {
    fn from(path: UpgradePath) -> Self {
        let leaves_api_v2 = Minor::of(&path.next) == Some(LAST_WITH_API_V2) && !path.rest.is_empty();
        Self {
            snapshot_count: leaves_api_v2.then_some(SNAPSHOT_COUNT_ON_THE_WAY),
            version: path.next,
            later: path.rest,
            blocker: None,
        }
    }
}
