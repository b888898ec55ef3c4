//! The container of a member: its command read as the program in it reads it, and etcd started as that would.

use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::contract::RefusedImage;
use etcd_operator_api::names::ANNOTATION_PERMIT;
use etcd_operator_etcd::flags::First;
use etcd_operator_etcd::version::{Minor, Version};
use etcd_operator_member::command::EtcdCommand;
use etcd_operator_member::verdict::Expected;
use serde_json::Value;
use tokio::time::Instant;

use super::Machine;
use super::api::{name, namespace, text};
use super::content::{tidy_kept, view};
use super::guard::{self, Attempt, Place, Waiting};
use super::kubelet::ended;
use super::state::{Container, Pod, State};
use crate::etcd::{ProcessId, Start};

/// The container that runs etcd.
const ETCD: &str = "etcd";
/// The repository of images whose etcd dies of every volume, as if the data on it were damaged.
pub const MISREADING_REPOSITORY: &str = "broken.example.com/etcd";

/// The repository of images whose etcd is of one version, whatever their tags say.
pub const MISLABELLED_REPOSITORY: &str = "mislabelled.example.com/etcd";
/// The same on the nodes of members, while Jobs get what the tags say.
pub const MISLABELLED_FOR_MEMBERS_REPOSITORY: &str = "mislabelled-for-members.example.com/etcd";
/// That version.
const MISLABELLED_VERSION: &str = "3.7.3";
/// A repository that has no images, as long as the story does not bring them; only Jobs look.
pub const MISSING_REPOSITORY: &str = "missing.example.com/etcd";

/// The version of etcd in an image.
pub(crate) fn version_in(image: &str, is_member: bool) -> Result<Version, String> {
    let (_, tag) = image.rsplit_once(':').unwrap_or_default();
    let is_mislabelled = image.starts_with(MISLABELLED_REPOSITORY)
        || (is_member && image.starts_with(MISLABELLED_FOR_MEMBERS_REPOSITORY));
    let version = if is_mislabelled { MISLABELLED_VERSION } else { tag };
    version.parse().map_err(|error| format!("{error}"))
}

/// What the permit's file will hold.
pub(crate) fn permit_of(pod: &Value) -> String {
    let annotation = pod["metadata"]["annotations"].get(ANNOTATION_PERMIT);
    annotation.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// What a container was told, with its variables filled in.
struct Told {
    guard: Vec<String>,
    etcd: EtcdCommand,
    image: String,
}

impl Told {
    /// The version of etcd in the image.
    fn version(&self) -> Result<Version, String> {
        version_in(&self.image, true)
    }

    /// Why etcd of this image must not start, as the real member finds it.
    fn refused_image(&self) -> Option<RefusedImage> {
        let expected: Minor = flag(&self.guard, "etcd-minor")?.parse().ok()?;
        let found = self.version().ok()?;
        (Minor::of(&found) != Some(expected)).then(|| RefusedImage {
            found: found.to_string(),
            expected: expected.to_string(),
        })
    }
}

fn read(pod: &Pod) -> Result<Told, String> {
    let containers = pod.object["spec"]["containers"].as_array().into_iter().flatten();
    let mut containers = containers.filter(|container| container["name"] == ETCD);
    let container = containers.next().ok_or("no container etcd")?;
    let words = [&container["command"], &container["args"]];
    let words = words.into_iter().filter_map(Value::as_array).flatten();
    let words: Vec<String> = words
        .filter_map(Value::as_str)
        .map(|word| fill(word, pod))
        .collect();
    let mut parts = words.splitn(2, |word| word == "--");
    let guard = parts.next().unwrap_or_default().to_vec();
    let volume = flag(&guard, "volume").unwrap_or_default();
    let etcd = parts.next().unwrap_or_default();
    let etcd = EtcdCommand::read(etcd, std::path::Path::new(&volume).join("data").as_path());
    Ok(Told {
        etcd: etcd.map_err(|error| error.to_string())?,
        image: text(container, "/image").to_owned(),
        guard,
    })
}

/// What the kubelet makes of `$(NAME)`.
fn fill(word: &str, pod: &Pod) -> String {
    let metadata = &pod.object["metadata"];
    let pairs = [
        ("$(POD_NAME)", metadata["name"].as_str()),
        ("$(POD_NAMESPACE)", metadata["namespace"].as_str()),
        ("$(POD_UID)", metadata["uid"].as_str()),
        ("$(POD_IP)", Some(pod.address.as_str())),
    ];
    pairs.into_iter().fold(word.to_owned(), |word, (name, value)| {
        word.replace(name, value.unwrap_or_default())
    })
}

fn flag(words: &[String], name: &str) -> Option<String> {
    let prefix = format!("--{name}=");
    words
        .iter()
        .find_map(|word| word.strip_prefix(&prefix).map(str::to_owned))
}

/// By what the network may cut a pod off.
pub(crate) fn labels(pod: &Pod) -> Vec<String> {
    vec![
        name(&pod.object).to_owned(),
        pod.address.clone(),
        pod.node.clone(),
    ]
}

fn place(uid: &str, pod: &Pod, told: &Told) -> Result<Place, String> {
    let need = |name: &str| flag(&told.guard, name).ok_or_else(|| format!("no --{name}"));
    Ok(Place {
        pod: uid.to_owned(),
        labels: labels(pod),
        disk: pod.disk.ok_or("no disk")?,
        expected: Expected {
            cluster_uid: need("cluster-uid")?,
            member: name(&pod.object).to_owned(),
            incarnation: need("incarnation")?
                .parse()
                .map_err(|_| "--incarnation is no number")?,
        },
        service: (
            namespace(&pod.object).to_owned(),
            text(&pod.object, "/spec/subdomain").to_owned(),
        ),
    })
}

/// Starts the container: what it is from now on.
pub(crate) fn start(machine: &Machine, uid: &str, pod: &mut Pod, state: &mut State) -> Container {
    let now = Instant::now();
    let prepared = read(pod).and_then(|told| Ok((place(uid, pod, &told)?, told)));
    let (place, told) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            machine.note(name(&pod.object), format_args!("cannot start: {why}"));
            return ended(pod, now, 1, &why, now);
        }
    };
    let refused = told.refused_image();
    let disk = if refused.is_some() {
        view(machine.etcds(), place.disk, state.is_weak)
    } else {
        match guard::attempt(machine, &place, state.is_weak) {
            Attempt::Starts => return launch(machine, pod, None, now),
            Attempt::Waits(disk) => *disk,
        }
    };
    let boot = state.nodes[&pod.node].boot;
    let waiting = Arc::new(Waiting::new(
        &place,
        (disk, refused),
        boot,
        machine.began(),
        state.chance.split(),
    ));
    let report = waiting.report();
    machine.note(
        name(&pod.object),
        format_args!("waits as {:?}: {}", report.verdict, report.detail),
    );
    let task = tokio::spawn({
        let (machine, waiting, file) = (machine.clone(), Arc::clone(&waiting), pod.permit.subscribe());
        let uid = uid.to_owned();
        async move {
            let first = guard::wait(machine.clone(), place, waiting, file).await;
            machine.permitted(&uid, first);
        }
    });
    Container::Waiting {
        since: now,
        waiting,
        task: task.abort_handle(),
    }
}

/// Becomes etcd.
pub(crate) fn launch(machine: &Machine, pod: &mut Pod, first: Option<First>, now: Instant) -> Container {
    match etcd(machine, pod, first) {
        Ok(process) => {
            tidy_later(machine, pod);
            Container::Running { since: now, process }
        }
        Err(why) => {
            machine.note(name(&pod.object), format_args!("etcd cannot start: {why}"));
            ended(pod, now, 2, &why, now)
        }
    }
}

/// What was set aside for a while goes when its time is over, as long as the disk is there.
fn tidy_later(machine: &Machine, pod: &Pod) {
    let etcds = machine.etcds().clone();
    let Some(disk) = pod.disk else { return };
    let keeps = etcds
        .content(disk)
        .map(|content| content.keeps)
        .unwrap_or_default();
    for kept in keeps {
        let pause = Duration::try_from(kept.until.duration_since(machine.wall())).unwrap_or_default();
        let (etcds, machine) = (etcds.clone(), machine.clone());
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            etcds.edit(disk, |content| tidy_kept(content, machine.wall()));
        });
    }
}

fn etcd(machine: &Machine, pod: &Pod, first: Option<First>) -> Result<ProcessId, String> {
    let told = read(pod)?;
    if told.image.starts_with(MISREADING_REPOSITORY) {
        return Err("panic: wal: crc mismatch".to_owned());
    }
    let need = |name: &str| told.etcd.flag(name).ok_or_else(|| format!("no --{name}"));
    let url = need("initial-advertise-peer-urls")?;
    let peer_url: etcd_operator_etcd::url::PeerUrl = url.parse().map_err(|error| format!("{error}"))?;
    let url = need("advertise-client-urls")?;
    let hosts = vec![pod.address.clone(), peer_url.host().to_owned()];
    Ok(machine.etcds().start(Start {
        hosts,
        labels: labels(pod),
        disk: pod.disk.ok_or("no disk")?,
        version: told.version()?,
        name: need("name")?,
        client_url: url.parse().map_err(|error| format!("{error}"))?,
        peer_url,
        first,
        quota: told
            .etcd
            .flag("quota-backend-bytes")
            .and_then(|bytes| bytes.parse().ok()),
    }))
}
