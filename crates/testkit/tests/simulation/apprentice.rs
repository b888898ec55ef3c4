//! A small operator, only to prove the simulator with: it makes a cluster, heals lost disks, scales, and can be told to
//! do one thing wrong. It knows no versions, no Events and no pity.

use std::time::Duration;

use etcd_operator_api::contract::{Mode, Permit, Report, VERSION, Verdict, write};
use etcd_operator_api::names::ANNOTATION_PERMIT;
use etcd_operator_etcd::endpoint::Endpoint;
use etcd_operator_etcd::membership::{Known, Membership, Role};
use etcd_operator_etcd::port::{Dial as _, Port};
use etcd_operator_testkit::simulation::{NAMESPACE, Seat};
use http::Request;
use serde_json::{Value, json};

use crate::objects;

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// A permit to bootstrap for whoever is empty, until the cluster is known.
    BootstrapAgain,
    /// The same, for ever.
    BootstrapForEver,
    /// A moved disk resumes if its index is not behind the last one seen.
    ResumeByIndex,
    /// A vote for a learner that is not asked first.
    PromoteUnseen,
    /// A member goes whatever the others do.
    RemoveBlindly,
    /// The claim of a lost member goes before the member does.
    DeleteClaimFirst,
    /// The StatefulSet shrinks before the member is removed.
    ShrinkFirst,
    /// Permits are given before anything is written down.
    PermitFirst,
    /// Every pod is deleted that is not of the newest template, all at once.
    RestartAll,
}

/// The UIDs of claims by their names.
type Claims = std::collections::BTreeMap<String, String>;

/// A pod, with what its process said.
struct Seen {
    name: String,
    uid: String,
    version: String,
    address: String,
    is_ending: bool,
    report: Option<Report>,
}

pub struct Apprentice {
    seat: Seat,
    client: kube::Client,
    flaw: Flaw,
    name: String,
    has_claims: bool,
}

type Done = Result<(), String>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl Apprentice {
    pub async fn run(seat: Seat, name: &str, flaw: Flaw, has_claims: bool) {
        let this = Self {
            client: seat.client(),
            seat,
            flaw,
            name: name.to_owned(),
            has_claims,
        };
        loop {
            // What fails is tried again.
            let _ = this.pass().await;
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let content = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(body.to_string().into_bytes())
            .unwrap();
        self.client
            .request(request)
            .await
            .map_err(|error| error.to_string())
    }

    fn path(&self, rest: &str) -> String {
        format!(
            "/apis/etcd.database.coreos.com/v1beta2/namespaces/{NAMESPACE}/etcdclusters/{}{rest}",
            self.name
        )
    }

    async fn pass(&self) -> Done {
        let cluster = self.ask("GET", &self.path(""), &Value::Null).await?;
        let size = cluster["spec"]["size"].as_u64().unwrap_or(3);
        let set = self.set(&cluster, size).await?;
        let (pods, claims) = (self.pods().await?, self.claims().await?);
        let latched = text(&cluster["status"]["clusterID"]);
        if latched.is_empty() {
            return self.begin(&cluster, size, &pods).await;
        }
        if self.flaw == Flaw::ResumeByIndex {
            self.resume(&cluster, &pods).await?;
        }
        let (port, known) = self.known(&pods).await.ok_or("nobody knows the members")?;
        self.last_seen(&cluster, &known).await?;
        if let Some(learner) = known.learners().next().cloned() {
            return self.finish(&cluster, &*port, &known, learner.id, &pods).await;
        }
        if self.flaw == Flaw::RestartAll {
            self.restart(&set, &pods).await?;
        }
        if self.heal(&cluster, &*port, &known, &pods, &claims).await? {
            return Ok(());
        }
        self.scale(&*port, &known, size, &set, (&pods, &claims)).await
    }

    /// The StatefulSet, made if it is not there, grown if it is too small.
    async fn set(&self, cluster: &Value, size: u64) -> Result<Value, String> {
        let base = format!("/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets");
        let path = format!("{base}/{}", self.name);
        match self.ask("GET", &path, &Value::Null).await {
            Ok(set) if set["spec"]["replicas"].as_u64() < Some(size) => {
                self.ask("PATCH", &path, &json!({"spec": {"replicas": size}}))
                    .await
            }
            Ok(set) => Ok(set),
            Err(error) if !error.contains("not found") => Err(error),
            Err(_) => {
                let services = format!("/api/v1/namespaces/{NAMESPACE}/services");
                for is_headless in [true, false] {
                    let _ = self
                        .ask("POST", &services, &objects::service(cluster, is_headless))
                        .await;
                }
                let budgets = format!("/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets");
                let _ = self
                    .ask("POST", &budgets, &objects::budget(cluster, size / 2 + 1))
                    .await;
                self.ask("POST", &base, &objects::set(cluster, size, self.has_claims))
                    .await
            }
        }
    }

    async fn pods(&self) -> Result<Vec<Seen>, String> {
        let path = format!(
            "/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=etcd_cluster%3D{}",
            self.name
        );
        let list = self.ask("GET", &path, &Value::Null).await?;
        let mut seen = Vec::new();
        for pod in list["items"].as_array().into_iter().flatten() {
            let address = text(&pod["status"]["podIP"]);
            let uid = text(&pod["metadata"]["uid"]);
            let report = if address.is_empty() {
                None
            } else {
                self.seat.report(&address).await.ok()
            };
            seen.push(Seen {
                name: text(&pod["metadata"]["name"]),
                version: text(&pod["metadata"]["resourceVersion"]),
                is_ending: pod["metadata"].get("deletionTimestamp").is_some(),
                report: report.filter(|report| report.pod_uid == uid),
                uid,
                address,
            });
        }
        Ok(seen)
    }

    async fn claims(&self) -> Result<Claims, String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims");
        let list = self.ask("GET", &path, &Value::Null).await?;
        let all = list["items"].as_array().into_iter().flatten();
        let pair = |claim: &Value| (text(&claim["metadata"]["name"]), text(&claim["metadata"]["uid"]));
        Ok(all.map(pair).collect())
    }

    async fn dial(&self, address: &str) -> Option<Box<dyn Port>> {
        let url = format!("http://{address}:2379").parse().ok()?;
        self.seat.dialer().dial(&Endpoint::plain(url)).await.ok()
    }

    async fn known(&self, pods: &[Seen]) -> Option<(Box<dyn Port>, Known)> {
        for pod in pods
            .iter()
            .filter(|pod| pod.report.is_none() && !pod.address.is_empty())
        {
            if let Some(port) = self.dial(&pod.address).await
                && let Membership::Known(known) = port.membership().await
            {
                return Some((port, known));
            }
        }
        None
    }

    async fn status(&self, status: &Value) -> Done {
        self.ask("PATCH", &self.path("/status"), &json!({"status": status}))
            .await?;
        Ok(())
    }

    fn url(&self, member: &str) -> String {
        format!("http://{member}.{}.{NAMESPACE}.svc:2380", self.name)
    }

    /// Writes down whom it is about to permit something, and then does.
    async fn permit(
        &self,
        pods: &[&Seen],
        cluster: &Value,
        mode: Mode,
        known: Option<&Known>,
        size: u64,
    ) -> Done {
        let mut targets = cluster["status"]["plan"]["step"]["targets"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for pod in pods {
            let report = pod.report.as_ref().unwrap();
            targets.retain(|target| target["member"] != pod.name.as_str());
            targets.push(json!({"member": pod.name, "podUID": pod.uid, "process": report.process}));
        }
        let step = json!({"plan": {"step": {"kind": format!("{mode:?}"), "targets": targets}}});
        if self.flaw != Flaw::PermitFirst {
            self.status(&step).await?;
        }
        for pod in pods {
            let report = pod.report.as_ref().unwrap();
            let names: Vec<String> = match known {
                Some(known) => known
                    .members
                    .values()
                    .map(|member| member.peer_urls[0].host().split('.').next().unwrap().to_owned())
                    .collect(),
                None => (0..size)
                    .map(|ordinal| format!("{}-{ordinal}", self.name))
                    .collect(),
            };
            let entries: Vec<String> = names
                .iter()
                .map(|name| format!("{name}={}", self.url(name)))
                .collect();
            let own = known.and_then(|known| known.at(&self.url(&pod.name).parse().unwrap()));
            let moved = |id: &Option<String>| (mode == Mode::Resume).then(|| id.clone()).flatten();
            let permit = Permit {
                version: VERSION,
                pod_uid: pod.uid.clone(),
                process: report.process.clone(),
                nonce: report.nonce.clone(),
                mode,
                incarnation: 1,
                cluster_uid: text(&cluster["metadata"]["uid"]),
                cluster_id: moved(&report.wal_cluster_id).or(known.map(|known| known.cluster.to_string())),
                member_id: moved(&report.wal_member_id).or(own.map(|member| member.id.to_string())),
                initial_cluster: entries.join(","),
                token: format!("{}-1", text(&cluster["metadata"]["uid"])),
                restore: None,
            };
            let permit = String::from_utf8(write(&permit)).unwrap();
            let patch = json!({"metadata": {
                "uid": pod.uid, "resourceVersion": pod.version, "annotations": {ANNOTATION_PERMIT: permit},
            }});
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", pod.name);
            self.ask("PATCH", &path, &patch).await?;
        }
        if self.flaw == Flaw::PermitFirst {
            self.status(&step).await?;
        }
        Ok(())
    }

    async fn begin(&self, cluster: &Value, size: u64, pods: &[Seen]) -> Done {
        if let Some((_, known)) = self.known(pods).await {
            return self
                .status(&json!({"clusterID": known.cluster.to_string()}))
                .await;
        }
        let empty = |pod: &&Seen| {
            let verdict = pod.report.as_ref().map(|report| &report.verdict);
            matches!(verdict, Some(Verdict::Empty | Verdict::Unborn))
        };
        let waiting: Vec<&Seen> = pods.iter().filter(empty).collect();
        let recorded = cluster["status"]["plan"]["step"]["targets"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let may = |pod: &&&Seen| {
            let target = recorded
                .iter()
                .find(|target| target["member"] == pod.name.as_str());
            let process = &pod.report.as_ref().unwrap().process;
            target.is_some_and(|target| target["process"] == process.as_str())
                || matches!(self.flaw, Flaw::BootstrapAgain | Flaw::BootstrapForEver)
        };
        let whom: Vec<&Seen> = if recorded.is_empty() {
            if waiting.len() < usize::try_from(size).unwrap() {
                return Ok(());
            }
            waiting
        } else {
            waiting.iter().filter(may).copied().collect()
        };
        if whom.is_empty() {
            return Ok(());
        }
        self.permit(&whom, cluster, Mode::Bootstrap, None, size).await
    }

    /// Remembers how far the log was seen.
    async fn last_seen(&self, cluster: &Value, known: &Known) -> Done {
        let index = known.raft_index.to_string();
        if self.flaw == Flaw::ResumeByIndex
            && cluster["status"]["leader"] != index.as_str()
            && known.raft_index.0.is_multiple_of(3)
        {
            self.status(&json!({"leader": index})).await?;
        }
        Ok(())
    }

    /// Lets disks go on that are not behind what was last seen, whoever made them.
    async fn resume(&self, cluster: &Value, pods: &[Seen]) -> Done {
        let seen: u64 = text(&cluster["status"]["leader"]).parse().unwrap_or(0);
        for pod in pods {
            let Some(report) = &pod.report else { continue };
            if report.verdict == Verdict::Moved && report.wal_index >= Some(seen) {
                self.permit(&[pod], cluster, Mode::Resume, None, 0).await?;
            }
        }
        Ok(())
    }

    /// A learner gets its permit, or its vote.
    async fn finish(
        &self,
        cluster: &Value,
        port: &dyn Port,
        known: &Known,
        id: etcd_operator_etcd::id::MemberId,
        pods: &[Seen],
    ) -> Done {
        let learner = &known.members[&id];
        let pod = pods
            .iter()
            .find(|pod| learner.is_at(&self.url(&pod.name).parse().unwrap()));
        let pod = pod.ok_or("no pod yet")?;
        if let Some(report) = &pod.report {
            let is_new = matches!(report.verdict, Verdict::Empty | Verdict::Unborn) && !learner.has_started();
            if is_new {
                return self.permit(&[pod], cluster, Mode::Join, Some(known), 0).await;
            }
            port.remove(id).await.map_err(|error| error.to_string())?;
            return Ok(());
        }
        if self.flaw != Flaw::PromoteUnseen {
            let own = self.dial(&pod.address).await.ok_or("it does not answer")?;
            let status = own.status().await.map_err(|error| error.to_string())?;
            if status.position.member != id {
                return Err("somebody else answers".to_owned());
            }
        }
        port.promote(id).await.map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Whether enough others answer so that a member can go.
    async fn can_spare(&self, known: &Known, without: &str, pods: &[Seen]) -> bool {
        let mut well = 0;
        for pod in pods
            .iter()
            .filter(|pod| pod.name != without && pod.report.is_none())
        {
            let is_voter = known
                .at(&self.url(&pod.name).parse().unwrap())
                .is_some_and(|member| member.role == Role::Voter);
            if is_voter
                && let Some(port) = self.dial(&pod.address).await
                && port.position().await.is_ok()
            {
                well += 1;
            }
        }
        let left = known.voters().count() - 1;
        left > 0 && well > left / 2
    }

    /// Does something about a member whose process waits. Whether it did.
    async fn heal(
        &self,
        cluster: &Value,
        port: &dyn Port,
        known: &Known,
        pods: &[Seen],
        claims: &Claims,
    ) -> Result<bool, String> {
        for pod in pods.iter().filter(|pod| !pod.is_ending) {
            let Some(report) = &pod.report else { continue };
            let member = known.at(&self.url(&pod.name).parse().unwrap());
            if self.flaw == Flaw::BootstrapForEver
                && matches!(report.verdict, Verdict::Empty | Verdict::Unborn)
            {
                let size = u64::try_from(known.members.len()).unwrap();
                self.permit(&[pod], cluster, Mode::Bootstrap, None, size).await?;
                return Ok(true);
            }
            if self.flaw == Flaw::DeleteClaimFirst && member.is_some() && report.verdict != Verdict::Empty {
                self.delete_claim(&pod.name, claims).await?;
            }
            if let Some(member) = member {
                if !self.can_spare(known, &pod.name, pods).await {
                    continue;
                }
                port.remove(member.id).await.map_err(|error| error.to_string())?;
                return Ok(true);
            }
            if !matches!(report.verdict, Verdict::Empty | Verdict::Unborn) {
                self.delete_claim(&pod.name, claims).await?;
                let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", pod.name);
                self.ask("DELETE", &path, &json!({"preconditions": {"uid": pod.uid}}))
                    .await?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes the very claim that was seen: by now another member may be on another one of that name.
    async fn delete_claim(&self, member: &str, claims: &Claims) -> Done {
        let name = format!("data-{member}");
        let Some(uid) = claims.get(&name) else {
            return Ok(());
        };
        let path = format!("/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims/{name}");
        let fence = json!({"preconditions": {"uid": uid}});
        match self.ask("DELETE", &path, &fence).await {
            Err(error) if !error.contains("not found") => Err(error),
            _ => Ok(()),
        }
    }

    async fn restart(&self, set: &Value, pods: &[Seen]) -> Done {
        if set["metadata"]["annotations"]["restart"].is_null() {
            return Ok(());
        }
        for pod in pods {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{}", pod.name);
            self.ask("DELETE", &path, &json!({"preconditions": {"uid": pod.uid}}))
                .await?;
        }
        Ok(())
    }

    async fn scale(
        &self,
        port: &dyn Port,
        known: &Known,
        size: u64,
        set: &Value,
        (pods, claims): (&[Seen], &Claims),
    ) -> Done {
        let ordinal = |url: &str| -> u64 {
            let pod = url.split('.').next().unwrap_or_default();
            pod.rsplit('-')
                .next()
                .and_then(|number| number.parse().ok())
                .unwrap_or(0)
        };
        let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{}", self.name);
        let replicas = set["spec"]["replicas"].as_u64().unwrap_or(size);
        if self.flaw == Flaw::ShrinkFirst && replicas > size {
            self.ask("PATCH", &path, &json!({"spec": {"replicas": size}}))
                .await?;
        }
        let surplus = known
            .members
            .values()
            .find(|member| ordinal(member.peer_urls[0].host()) >= size);
        if let Some(member) = surplus {
            let pod = member.peer_urls[0].host().split('.').next().unwrap_or_default();
            if self.flaw != Flaw::RemoveBlindly && !self.can_spare(known, pod, pods).await {
                return Ok(());
            }
            port.remove(member.id).await.map_err(|error| error.to_string())?;
            return Ok(());
        }
        if replicas > size {
            self.ask("PATCH", &path, &json!({"spec": {"replicas": size}}))
                .await?;
            for ordinal in size..replicas {
                self.delete_claim(&format!("{}-{ordinal}", self.name), claims)
                    .await?;
            }
            return Ok(());
        }
        for pod in pods.iter().filter(|pod| pod.report.is_some()) {
            let url = self.url(&pod.name).parse().unwrap();
            if known.at(&url).is_none() {
                port.add_learner(&[url])
                    .await
                    .map_err(|error| error.to_string())?;
                return Ok(());
            }
        }
        Ok(())
    }
}
