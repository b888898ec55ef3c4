//! How a process of etcd starts: again from its own log, first with a new cluster, first in one that has a place for
//! it, or not at all. These rules are what makes a lost disk dangerous, so they are etcd's own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_etcd::flags::{First, FirstState};
use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::membership::{Member, Role};
use etcd_operator_etcd::url::PeerUrl;

use super::disk::{DataDir, Wal};
use super::ids;
use super::log::{Change, Entry, Log};
use super::process::{Process, ProcessId, Running, Stance, Start};
use super::versions;
use super::world::{Event, FindingKind, World};

/// The token of clusters that were given none.
const NO_TOKEN: &str = "etcd-cluster";
/// How long a process opens its files.
const OPENING: (Duration, Duration) = (Duration::from_millis(80), Duration::from_millis(250));

/// Why a start fails: exit code and last words.
pub(super) type Failure = (i32, String);

impl World {
    /// Starts a process.
    pub(crate) fn start(&mut self, start: Start) -> ProcessId {
        let process = ProcessId(self.fresh());
        for host in &start.hosts {
            self.hosts.insert(host.clone(), process);
        }
        let what = match &start.first {
            None => "on what it has".to_owned(),
            Some(first) => format!("{:?} with {} members", first.state, first.members.len()),
        };
        self.timeline
            .note(&start.name, format_args!("etcd {} starts {what}", start.version));
        self.processes.insert(
            process,
            Process {
                start,
                is_stopped: false,
                is_ending: false,
                member: None,
            },
        );
        let (least, most) = OPENING;
        let opening = self.chance.between(least, most);
        self.after(opening, Event::Boot(process));
        self.changed();
        process
    }

    pub(crate) fn boot(&mut self, process: ProcessId) {
        let Some(Process {
            start, is_stopped, ..
        }) = self.processes.get(&process)
        else {
            return;
        };
        if *is_stopped {
            self.after(Duration::from_millis(100), Event::Boot(process));
            return;
        }
        let start = start.clone();
        if let Err((code, why)) = self.open(process, &start) {
            self.exit(process, code, &why);
        }
    }

    fn open(&mut self, process: ProcessId, start: &Start) -> Result<(), Failure> {
        let disk = self.disks.get(&start.disk).filter(|disk| !disk.is_unreadable);
        let disk = disk.ok_or_else(|| (1, "cannot read the data directory".to_owned()))?;
        if disk.is_full {
            return Err((
                1,
                "cannot write to the data directory: no space left on device".to_owned(),
            ));
        }
        let data = disk.content.data.as_ref();
        if data.is_some_and(|data| data.is_damaged) {
            return Err((
                2,
                "the data directory cannot be read: checksum mismatch".to_owned(),
            ));
        }
        let is_first = data.is_none_or(|data| data.wal.is_none());
        if is_first {
            let wal = match &start.first {
                None => self.alone(start),
                Some(first) if first.state == FirstState::New => self.begin(start, first),
                Some(first) => self.join(start, first),
            };
            let data = match &wal {
                Ok(wal) => DataDir {
                    wal: Some(wal.clone()),
                    ..DataDir::default()
                },
                Err(_) => DataDir::database_only(),
            };
            if let Some(disk) = self.disks.get_mut(&start.disk) {
                disk.content.data = Some(data);
            }
            wal?;
        }
        self.enter(process, start)
    }

    /// A cluster of its own, because it was told of no other.
    fn alone(&self, start: &Start) -> Result<Wal, Failure> {
        let first = First {
            state: FirstState::New,
            token: NO_TOKEN.to_owned(),
            members: vec![(start.name.clone(), start.peer_url.clone())],
        };
        self.begin(start, &first)
    }

    /// The first start of a new cluster.
    fn begin(&self, start: &Start, first: &First) -> Result<Wal, Failure> {
        let wal = founded(&start.name, &start.peer_url, first, None)?;
        if self.was_begun(start, wal.cluster, wal.member) {
            return Err((1, format!("member {} has already been bootstrapped", wal.member)));
        }
        Ok(wal)
    }

    /// Whether a peer that answers knows this member as one that has started before.
    fn was_begun(&self, start: &Start, cluster: ClusterId, own: MemberId) -> bool {
        self.processes.values().any(|peer| {
            peer.awake().is_some_and(|running| {
                let known = running.applied.members.get(&own);
                running.cluster == cluster
                    && known.is_some_and(|member| !member.client_urls.is_empty())
                    && self.network.connects(&start.labels, &peer.start.labels)
            })
        })
    }

    /// The first start of a member that was added before.
    fn join(&self, start: &Start, first: &First) -> Result<Wal, Failure> {
        let peers = first.members.iter().map(|(_, url)| url);
        let found = peers
            .filter(|url| **url != start.peer_url)
            .find_map(|url| self.peer_at(start, url.host()))
            .ok_or_else(|| (1, "cannot fetch cluster info from peer urls".to_owned()))?;
        let told: Vec<String> = sorted(first.members.iter().map(|(_, url)| url.to_string()));
        let urls = found
            .applied
            .members
            .values()
            .flat_map(|member| &member.peer_urls);
        let known: Vec<String> = sorted(urls.map(ToString::to_string));
        if told != known {
            let why = format!("error validating peerURLs: told {told:?}, the cluster has {known:?}");
            return Err((1, why));
        }
        let own = found
            .applied
            .members
            .values()
            .find(|member| member.is_at(&start.peer_url));
        let own = own.ok_or_else(|| (1, "this member is not in the cluster".to_owned()))?;
        versions::check_joins(&start.version, &found.applied)?;
        Ok(Wal {
            cluster: found.cluster,
            member: own.id,
            term: 0,
            vote: None,
            commit: 0,
            log: Log::default(),
            snapshot: 0,
        })
    }

    /// The member that answers a starting one under this name.
    fn peer_at(&self, start: &Start, host: &str) -> Option<&Running> {
        let peer = self.processes.get(self.hosts.get(host)?)?;
        let is_reached = self.network.connects(&start.labels, &peer.start.labels);
        peer.awake().filter(|_| is_reached)
    }

    /// The log is open: the process is a member from here on.
    fn enter(&mut self, process: ProcessId, start: &Start) -> Result<(), Failure> {
        let wal = self.wal(process).expect("a start that succeeds leaves a log");
        let (cluster, id, applied) = (wal.cluster, wal.member, wal.applied());
        if let Some(agreed) = &applied.cluster_version {
            versions::check_runs_on(&start.version, agreed)?;
        }
        versions::check_replays(&start.version, wal)?;
        let stored = self.stored_version(start.disk);
        versions::check_reads(&start.version, stored.as_ref())?;
        let storage = versions::storage_version(&applied).max(stored.unwrap_or(versions::oldest()));
        self.witness_all(process);
        self.look_for_amnesia(process, start);
        let running = Running {
            cluster,
            id,
            since: self.now,
            storage,
            applied,
            stance: Stance::Follower { leader: None },
            active: BTreeMap::new(),
            breaking: BTreeMap::new(),
            timer: None,
            is_parked: false,
            is_published: false,
            publishing: None,
            waiters: BTreeMap::new(),
        };
        if let Some(process) = self.processes.get_mut(&process) {
            process.member = Some(running);
        }
        self.note(process, format_args!("is member {id} of {cluster}"));
        self.follow_cluster_version(process);
        self.changed();
        self.refresh();
        Ok(())
    }
}

impl World {
    /// A voter that has lost what it acknowledged is the beginning of every loss of data.
    fn look_for_amnesia(&mut self, process: ProcessId, start: &Start) {
        let Some((cluster, id)) = self.wal(process).map(|wal| (wal.cluster, wal.member)) else {
            return;
        };
        let is_voter = self
            .chronicles
            .get(&cluster)
            .is_some_and(|chronicle| chronicle.applied.is_voter(id));
        if let Some(missing) = self.forgotten(process).filter(|_| is_voter) {
            let what = format!(
                "{} ({id}) starts without {missing} entries that it had acknowledged",
                start.name
            );
            let is_in_place = self.reverted.contains(&start.disk);
            let kind = if is_in_place {
                FindingKind::Reverted
            } else {
                FindingKind::Amnesia
            };
            self.find(kind, what);
        }
    }
}

/// The log that the founder of a cluster begins with, which was there already if it was restored.
pub(super) fn founded(
    name: &str,
    url: &PeerUrl,
    first: &First,
    restored: Option<Entry>,
) -> Result<Wal, Failure> {
    let mut members: Vec<Member> = first
        .members
        .iter()
        .map(|(name, url)| Member {
            id: ids::member(std::slice::from_ref(url), &first.token, None),
            name: Some(name.clone()),
            peer_urls: vec![url.clone()],
            client_urls: Vec::new(),
            role: Role::Voter,
        })
        .collect();
    members.sort_by_key(|member| member.id);
    let own = members
        .iter()
        .find(|member| member.name.as_deref() == Some(name))
        .filter(|member| member.is_at(url));
    let own = own
        .ok_or_else(|| (1, format!("{name} is not in the initial cluster as advertised")))?
        .id;
    let cluster = ids::cluster(members.iter().map(|member| member.id));
    let mut log = Log::default();
    let added = members.into_iter().map(|member| Entry {
        id: member.id.get(),
        term: 1,
        change: Change::Add(Box::new(member)),
    });
    for entry in restored.into_iter().chain(added) {
        log.push(Arc::new(entry));
    }
    Ok(Wal {
        cluster,
        member: own,
        term: 1,
        vote: None,
        commit: log.last(),
        log,
        snapshot: 0,
    })
}

fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    texts
}
