//! Kubelets: each runs the pods of its node by what it knows itself, brings their volumes, starts their containers again
//! when they end, looks whether they are ready, and ends them in time.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_api::names::EXIT_BEFORE_ETCD;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Machine;
use super::api::{Kind, Objects, Write, claims_of, is_ending, name, namespace, text, uid};
use super::content::arrival;
use super::state::{Container, Ended, Pod, State};
use super::status::{self, Shown};
use super::{fetch, jobs, member};
use crate::etcd::{DiskId, Etcds};
use crate::fake::Stored;

/// How long until a container can start: images are there, volumes are mounted, the program is copied.
const CREATING: (Duration, Duration) = (Duration::from_millis(300), Duration::from_millis(1500));
/// How much of that comes after everything that is run before it.
const STARTING: Duration = Duration::from_millis(300);
/// How late a kubelet hears at most that a pod is to end.
const LATE: Duration = Duration::from_millis(300);
/// The first pause before a container that ended soon starts again; doubled each time.
const BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(5);
/// A container that ran for so long is not taken for one that keeps ending.
const LONG: Duration = Duration::from_mins(10);
/// How long a probe takes to notice that a member is ready, and that it is not.
const NOTICES_READY: Duration = Duration::from_secs(1);
const NOTICES_UNREADY: Duration = Duration::from_secs(5);

/// What kubelets do, what they write, and when they look again.
pub(crate) fn step(
    machine: &Machine,
    objects: &Objects,
    state: &mut State,
    due: &mut Vec<Instant>,
) -> Vec<Write> {
    take_pods(objects, state);
    let now = Instant::now();
    let uids: Vec<String> = state.pods.keys().cloned().collect();
    let mut writes = Vec::new();
    for uid in uids {
        let Some(mut pod) = state.pods.remove(&uid) else {
            continue;
        };
        let Some(node) = state.nodes.get(&pod.node).filter(|node| node.is_up).cloned() else {
            state.pods.insert(uid, pod);
            continue;
        };
        if node.is_connected {
            hear(&mut pod, &uid, objects, state, now, due);
        }
        run(machine, &uid, &mut pod, objects, state, now, due);
        let is_over = pod.is_over();
        if node.is_connected {
            writes.extend(tell(machine, &mut pod, &uid, objects));
        }
        let is_forgotten = is_over && node.is_connected && !is_stored(&uid, objects);
        if is_forgotten {
            unmount(machine.etcds(), &pod);
        } else {
            state.pods.insert(uid, pod);
        }
    }
    writes
}

fn is_stored(wanted: &str, objects: &Objects) -> bool {
    objects.pods.iter().any(|pod| uid(pod) == wanted)
}

/// Pods that came to a node whose kubelet hears of them.
fn take_pods(objects: &Objects, state: &mut State) {
    for pod in &objects.pods {
        let node = text(pod, "/spec/nodeName").to_owned();
        let hears = state
            .nodes
            .get(&node)
            .is_some_and(|node| node.is_up && node.is_connected);
        if !hears || state.pods.contains_key(uid(pod)) || jobs::is_of_job(pod) {
            continue;
        }
        let (least, most) = CREATING;
        let ready_at = Instant::now() + state.chance.between(least, most);
        let address = state.address();
        let taken = Pod {
            object: Arc::clone(pod),
            looks_once: looks_once(pod),
            node,
            address,
            disk: None,
            is_own_disk: false,
            arrival: OnceCell::new(),
            container: Container::Creating(ready_at),
            fetch: fetch::of(pod),
            restarts: 0,
            failures: 0,
            last: None,
            before: None,
            permit: watch::Sender::new(member::permit_of(pod)),
            permit_due: None,
            is_ready: false,
            probe: None,
            hears_at: None,
            ending: None,
            told: None,
        };
        state.pods.insert(uid(pod).to_owned(), taken);
    }
}

/// Whether the readiness of a member is asked of etcd's own page, and told at first sight.
fn looks_once(pod: &Value) -> bool {
    let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let etcd = containers.find(|container| container["name"] == "etcd");
    etcd.is_some_and(|etcd| {
        let probe = &etcd["readinessProbe"];
        probe["httpGet"]["path"] == "/readyz" && probe["successThreshold"].as_i64().unwrap_or(1) < 2
    })
}

/// What a connected kubelet hears about a pod of its own.
fn hear(
    pod: &mut Pod,
    own: &str,
    objects: &Objects,
    state: &mut State,
    now: Instant,
    due: &mut Vec<Instant>,
) {
    let stored = objects.pods.iter().find(|stored| uid(stored) == own);
    let Some(stored) = stored else {
        // Somebody took it away by force: it ends at once.
        pod.ending = Some(pod.ending.map_or(now, |ending| ending.min(now)));
        return;
    };
    pod.object = Arc::clone(stored);
    if is_ending(stored) && hears_of_its_end(pod, state, now, due) {
        let grace = stored["metadata"]["deletionGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(30);
        let end = now + Duration::from_secs(grace);
        pod.ending = Some(pod.ending.map_or(end, |ending| ending.min(end)));
    }
    let wanted = member::permit_of(stored);
    let is_coming = pod.permit_due.as_ref().is_some_and(|(_, text)| *text == wanted);
    if *pod.permit.borrow() == wanted {
        pod.permit_due = None;
    } else if !is_coming {
        let (least, most) = state.nodes[&pod.node].lateness;
        pod.permit_due = Some((now + state.chance.between(least, most), wanted));
    }
}

/// Whether a kubelet knows by now that a pod is to end. It is late only where that matters: a container that has ended may be
/// started again meanwhile.
fn hears_of_its_end(pod: &mut Pod, state: &mut State, now: Instant, due: &mut Vec<Instant>) -> bool {
    let late = match &pod.container {
        Container::Ended(_) => LATE,
        _ => Duration::ZERO,
    };
    let at = *pod.hears_at.get_or_insert_with(|| {
        if late.is_zero() {
            now
        } else {
            now + state.chance.between(Duration::ZERO, late)
        }
    });
    if now < at {
        due.push(at);
    }
    now >= at
}

fn run(
    machine: &Machine,
    uid: &str,
    pod: &mut Pod,
    objects: &Objects,
    state: &mut State,
    now: Instant,
    due: &mut Vec<Instant>,
) {
    if let Some((at, text)) = pod.permit_due.take() {
        if now >= at {
            pod.permit.send_replace(text);
        } else {
            due.push(at);
            pod.permit_due = Some((at, text));
        }
    }
    if let Some(deadline) = pod.ending {
        end(machine, pod, deadline, now, due);
        // Whoever takes its time to end is still looked at.
        probe(machine, pod, now, due);
        return;
    }
    let next = match &pod.container {
        Container::Creating(at) | Container::Ended(at) if now < *at => {
            due.push(*at);
            due.extend(pod.backs_off_at().filter(|at| now < *at));
            None
        }
        Container::Creating(_) | Container::Ended(_) => {
            if !mount(machine.etcds(), uid, pod, objects, state) {
                due.push(now + Duration::from_secs(1));
                return;
            }
            look(machine.etcds(), pod);
            match fetch::step(machine, pod, state, now) {
                Some(at) => Some(Container::Creating(at)),
                None => Some(member::start(machine, uid, pod, state)),
            }
        }
        Container::Running { since, process } => {
            let since = *since;
            let exit = machine.etcds().exit(*process);
            exit.map(|exit| ended(pod, since, exit.code, &exit.why, now))
        }
        // As etcd would, with the first file that cannot be read.
        Container::Waiting { since, .. } if pod.disk.is_some_and(|disk| machine.etcds().is_gone(disk)) => {
            let since = *since;
            Some(ended(pod, since, 137, "the disk is gone", now))
        }
        Container::Waiting { .. } => None,
    };
    if let Some(next) = next {
        if let Container::Ended(at) | Container::Creating(at) = &next {
            due.push(*at);
        }
        pod.container = next;
        due.extend(pod.backs_off_at().filter(|at| now < *at));
    }
    probe(machine, pod, now, due);
}

/// A container ended by itself and starts again, at first at once and later after growing pauses.
pub(crate) fn ended(pod: &mut Pod, since: Instant, code: i32, why: &str, now: Instant) -> Container {
    pod.failures = if now >= since + LONG { 0 } else { pod.failures + 1 };
    pod.restarts += 1;
    note_end(pod, code, why, now);
    let doublings = pod.failures.saturating_sub(2).min(10);
    let pause = match pod.failures {
        0 | 1 => Duration::from_millis(100),
        _ => (BACK_OFF * (1 << doublings)).min(LONGEST_BACK_OFF),
    };
    Container::Ended(now + pause)
}

fn note_end(pod: &mut Pod, code: i32, why: &str, now: Instant) {
    let ended = Ended {
        code,
        why: why.to_owned(),
        at: now,
    };
    pod.before = pod.last.replace(ended);
}

/// Tells a pod to end, and makes it end when its time is over.
fn end(machine: &Machine, pod: &mut Pod, deadline: Instant, now: Instant, due: &mut Vec<Instant>) {
    let code = match &pod.container {
        Container::Ended(_) => return,
        // All that runs before it has run: of one that should be there and cannot be found is said that it was killed.
        Container::Creating(at) if *at <= now + STARTING && !fetch::is_due(pod) => 137,
        // It was not its turn yet: nothing is said of how it ended.
        Container::Creating(_) => {
            pod.container = Container::Ended(now);
            return;
        }
        Container::Waiting { .. } => i32::from(EXIT_BEFORE_ETCD),
        Container::Running { process, .. } => match machine.etcds().exit(*process) {
            Some(exit) => exit.code,
            None if now >= deadline => {
                machine.etcds().kill(*process);
                137
            }
            None => {
                machine.etcds().terminate(*process);
                due.push(deadline);
                return;
            }
        },
    };
    note_end(pod, code, "ended", now);
    pod.container = Container::Ended(now);
    pod.is_ready = false;
}

/// Looks whether a member answers, as its probe does.
fn probe(machine: &Machine, pod: &mut Pod, now: Instant, due: &mut Vec<Instant>) {
    let is_ready = if let Container::Running { process, .. } = &pod.container {
        machine.etcds().is_ready(*process, pod.looks_once)
    } else {
        // The end of a container is seen at once.
        pod.is_ready = false;
        false
    };
    if is_ready == pod.is_ready {
        pod.probe = None;
        return;
    }
    let wait = if is_ready { NOTICES_READY } else { NOTICES_UNREADY };
    let at = *pod.probe.get_or_insert(now + wait);
    if now >= at {
        pod.is_ready = is_ready;
        pod.probe = None;
    } else {
        due.push(at);
    }
}

/// Brings the disk of a pod. False while it cannot be had.
fn mount(etcds: &Etcds, uid: &str, pod: &mut Pod, objects: &Objects, state: &mut State) -> bool {
    let claim = claims_of(&pod.object).find(|(volume, _)| *volume == "data");
    let Some((_, claim)) = claim else {
        if pod.disk.is_none() {
            pod.disk = Some(etcds.disk());
            pod.is_own_disk = true;
        }
        return true;
    };
    let disk = disk_of(objects.claim(namespace(&pod.object), claim), state).or(pod.disk);
    let Some(disk) = disk.filter(|disk| !state.is_mounted(*disk, uid)) else {
        return false;
    };
    pod.disk = Some(disk);
    true
}

/// What runs first in a pod looks at its volume, if it is told to.
fn look(etcds: &Etcds, pod: &Pod) {
    pod.arrival.get_or_init(|| {
        let containers = pod.object["spec"]["initContainers"].as_array();
        let mut words = containers.into_iter().flatten().flat_map(|container| {
            let words = container["command"].as_array();
            words.into_iter().flatten().filter_map(Value::as_str)
        });
        let is_told = words.any(|word| word.starts_with("--volume="));
        pod.disk.filter(|_| is_told).and_then(|disk| arrival(etcds, disk))
    });
}

fn disk_of(claim: Option<&Arc<Stored>>, state: &State) -> Option<DiskId> {
    let claim = claim?;
    let is_bound = text(claim, "/status/phase") == "Bound";
    let disk = state.disks.get(text(claim, "/spec/volumeName"));
    disk.copied().filter(|_| is_bound)
}

fn unmount(etcds: &Etcds, pod: &Pod) {
    if let Some(disk) = pod.disk.filter(|_| pod.is_own_disk) {
        etcds.destroy(disk);
    }
}

/// What the kubelet writes about a pod: whatever changes, how it ended before it goes, and then that it is gone.
fn tell(machine: &Machine, pod: &mut Pod, own: &str, objects: &Objects) -> Option<Write> {
    let stored = objects.pods.iter().find(|stored| uid(stored) == own)?;
    let is_over = pod.is_over();
    if !is_over && pod.told.as_ref().is_some_and(|told| told.is_still(pod, stored)) {
        return None;
    }
    // That a container will not be started again is told first as how it ended.
    let backs_off = status::says_that_it_backs_off(&stored["status"]);
    let wanted = status::of(machine, pod, &stored["status"], is_over && !backs_off);
    let is_told = status::is_told(&stored["status"], &wanted);
    let (namespace, name) = (namespace(stored).to_owned(), name(stored).to_owned());
    if is_told && is_over && !backs_off {
        return Some(Write::Delete {
            kind: Kind::Pod,
            namespace,
            name,
            uid: own.to_owned(),
            is_at_once: true,
        });
    }
    if is_told {
        pod.told = Some(Shown::of(pod, stored));
        return None;
    }
    Some(Write::Patch {
        kind: Kind::Pod,
        namespace,
        name,
        is_status: true,
        patch: serde_json::json!({"metadata": {"uid": own}, "status": wanted}),
    })
}
