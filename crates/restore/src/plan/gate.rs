//! Whether a verified backup may be put in a cluster's place: everything that can be told before anything is touched.

use std::time::Duration;

use etcd_operator_api::contract::{RestoreIntent, RestoreSecrets, VERSION, Verified};
use etcd_operator_api::quantity::Bytes;
use etcd_operator_api::span::Span;
use etcd_operator_api::version::EtcdVersion;

use super::Reason;
use super::choose::may_be_by;
use crate::desired::{At, From};
use crate::world::{Cluster, Source, World};

/// The size that etcd lets a database have unless it is told otherwise.
const QUOTA: u64 = 2 << 30;
/// What etcd's tool writes beside the database.
const LOG: u64 = 128 << 20;
/// The highest revision that a restored cluster may begin with. etcd counts in 63 bits and never back: half of them stay.
const HIGHEST: i64 = 1 << 62;

/// What the cluster is asked for and what that means in words, or why it must not be.
pub fn pass(
    world: &World,
    cluster: &Cluster,
    source: &Source,
    verified: &Verified,
) -> Result<(RestoreIntent, String), (Reason, String)> {
    if let Some(text) = strays(world, source, verified) {
        return Err((Reason::NoBackup, text));
    }
    if verified.auth_enabled {
        let text = format!(
            "{} was taken from an etcd that asks clients who they are ({} users, {} roles), and the operator cannot answer that yet",
            source.object, verified.users, verified.roles
        );
        return Err((Reason::AuthEnabled, text));
    }
    if let Some(text) = too_high(world, source, verified) {
        return Err((Reason::RevisionTooHigh, text));
    }
    let (wrote, from) = writer(verified);
    if let (Some(from), Some(to)) = (&from, &cluster.version)
        && (from.major, from.minor) > (to.major, to.minor)
    {
        let text = format!(
            "{} was written by etcd {from}, and the cluster runs {to}, which cannot read it: set spec.version of the EtcdCluster {} to {}.{} or newer",
            source.object, cluster.name, from.major, from.minor
        );
        return Err((Reason::NewerVersion, text));
    }
    if let Some(text) = too_large(cluster, source, verified) {
        return Err((Reason::NoRoom, text));
    }
    let (needed, old) = (room(verified), verified.beside.unwrap_or(0));
    let is_enough = |volume: &u64| *volume >= needed.saturating_add(old);
    if let Some(volume) = cluster.volume.filter(|volume| !is_enough(volume)) {
        let text = format!(
            "the volume of a member has {volume} bytes, and the download, the new database and its log need {needed} beside the {old} bytes of the old one: raise spec.storage.size of the EtcdCluster {}",
            cluster.name
        );
        return Err((Reason::NoRoom, text));
    }
    if world.is_claim_shared == Some(false) && cluster.members > 1 {
        let text = format!(
            "the PersistentVolumeClaim {} can be mounted on one node only, and {} members on several nodes would need it: restore into one member (spec.size: 1 in the EtcdCluster {}) and raise the size again once the restore has succeeded, or use a claim with the access mode ReadWriteMany or ReadOnlyMany, or an object store",
            source.location.claim().unwrap_or_default(),
            cluster.members,
            cluster.name
        );
        return Err((Reason::ClaimNotShared, text));
    }
    let intent = intent(world, source, verified, wrote.unwrap_or_default());
    Ok((intent, words(world, cluster, source, verified)))
}

/// Why a backup is not the one that was asked for, though an object of its name was found: it was replaced since.
fn strays(world: &World, source: &Source, verified: &Verified) -> Option<String> {
    let From::Backup { at, .. } = &world.desired.from else {
        return None;
    };
    let (object, found) = (&source.object, verified.revision);
    match *at {
        At::Revision(wanted) if found > wanted => Some(format!(
            "{object} holds revision {found} by now, and one not above {wanted} is asked for"
        )),
        At::Time(wanted) if !verified.completed_at.is_some_and(|at| may_be_by(at, wanted)) => Some(format!(
            "{object} was made again since, and one that was finished not after {wanted} is asked for"
        )),
        _ => None,
    }
}

/// The etcd that wrote it, as it is told: the manifest and the database each say one, and either may be wrong or missing, so
/// the newer one counts.
fn writer(verified: &Verified) -> (Option<&str>, Option<EtcdVersion>) {
    let told = [&verified.etcd_version, &verified.cluster_version];
    let read = told.into_iter().flatten().filter_map(|text| {
        let version = text.parse::<EtcdVersion>().ok()?;
        Some((version, text.as_str()))
    });
    let newest = read.max_by(|(one, _), (other, _)| one.cmp(other));
    newest.map_or((None, None), |(version, text)| (Some(text), Some(version)))
}

/// Why etcd could not count on from there. Nobody could take that back: what was restored once is never gone below.
fn too_high(world: &World, source: &Source, verified: &Verified) -> Option<String> {
    let bump = world.desired.revision_bump;
    let is_low = verified
        .revision
        .checked_add(bump)
        .is_some_and(|sum| sum <= HIGHEST);
    (!is_low).then(|| {
        format!(
            "{} holds revision {}, which raised by {bump} is beyond {HIGHEST}, where etcd comes to the end of what it can count: restore another backup, or one with spec.revisionBump 0 where that suffices",
            source.object, verified.revision
        )
    })
}

/// Why etcd would refuse every write into what is restored.
fn too_large(cluster: &Cluster, source: &Source, verified: &Verified) -> Option<String> {
    let size = verified.object.snapshot_size;
    let quota = cluster.quota.unwrap_or(QUOTA);
    (size >= quota).then(|| {
        let remedy = if cluster.is_waiting {
            "raise spec.etcd.quotaBackendBytes of it"
        } else {
            "restore it into another EtcdCluster, with a larger spec.etcd.quotaBackendBytes"
        };
        format!(
            "the database of {} has {size} bytes, no less than the {quota} that one of the EtcdCluster {} may have, so that etcd would refuse every write: {remedy}",
            source.object, cluster.name
        )
    })
}

/// Bytes that a volume must hold beside the data of before.
pub fn room(verified: &Verified) -> u64 {
    let snapshot = verified.object.snapshot_size;
    snapshot.saturating_mul(2).saturating_add(LOG)
}

pub fn intent(world: &World, source: &Source, verified: &Verified, wrote: &str) -> RestoreIntent {
    let named = |secret: Option<&str>| secret.map(str::to_owned);
    RestoreIntent {
        version: VERSION,
        uid: world.uid.clone(),
        name: world.name.clone(),
        store: source.location.order(&source.object),
        secrets: RestoreSecrets {
            store: named(source.location.secret()),
            ca: named(source.location.ca_secret()),
            keys: source.keys.clone(),
            claim: named(source.location.claim()),
        },
        object: verified.object.clone(),
        revision: verified.revision,
        etcd_version: wrote.to_owned(),
        digest: verified.digest.clone(),
        revision_bump: world.desired.revision_bump,
        keep_previous_seconds: world.desired.keep_previous.as_secs(),
        compared_cluster: None,
    }
}

/// What will happen.
fn words(world: &World, cluster: &Cluster, source: &Source, verified: &Verified) -> String {
    let age = verified.completed_at.map_or_else(String::new, |at| {
        let age = Duration::try_from(world.now.duration_since(at)).unwrap_or_default();
        let age = Duration::from_secs(age.as_secs());
        format!(", {} old", Span(age))
    });
    let alarms = if verified.alarms.is_empty() {
        String::new()
    } else {
        format!(
            " It was taken under the alarm {}, which is taken back once the quota is known to suffice.",
            verified.alarms.join(", ")
        )
    };
    let people = match (verified.users, verified.roles) {
        (0, 0) => String::new(),
        (users, roles) => format!(
            " It holds {users} users and {roles} roles of etcd, which come with it; nobody is asked who they are."
        ),
    };
    let first = match (world.desired.backs_up_first, cluster.holds_nothing) {
        (true, true) => " There is nothing to back up before that: nothing of the cluster was ever started.",
        (true, false) => " The cluster is backed up before that.",
        (false, _) => "",
    };
    let wrote = verified
        .etcd_version
        .as_deref()
        .map_or_else(String::new, |version| format!(", of etcd {version}"));
    if cluster.is_waiting {
        let fleeting = if cluster.is_ephemeral {
            " They live with the pods, and are gone with them."
        } else {
            ""
        };
        return format!(
            "{} (revision {}, {} keys, {}{wrote}{age}) becomes the data of the {} members of EtcdCluster {}, which waits for it.{fleeting}{alarms}{people}{first}",
            source.object,
            verified.revision,
            verified.keys,
            Bytes(verified.object.snapshot_size),
            cluster.members,
            cluster.name
        );
    }
    let kept = Span(world.desired.keep_previous);
    let old = if cluster.is_ephemeral {
        "The old data live with the pods: they are gone as soon as these stop, and cannot come back if the restore fails.".to_owned()
    } else {
        format!(
            "The old data can come back until the restore is committed, and are kept on the volumes for {kept} then."
        )
    };
    format!(
        "{} (revision {}, {} keys, {}{wrote}{age}) replaces all data of the {} members of EtcdCluster {}; it stops serving meanwhile. Each volume needs {} beside its data. {old}{alarms}{people}{first}",
        source.object,
        verified.revision,
        verified.keys,
        Bytes(verified.object.snapshot_size),
        cluster.members,
        cluster.name,
        Bytes(room(verified)),
    )
}
