//! What a waiting process knows of itself, and the report made of it. Time and chance come in from outside.

use std::time::Duration;

use etcd_operator_api::contract::{Permit, Preparing, RefusedImage, Report, VERSION};

use crate::nonce::Nonce;
use crate::permit::{self, Applicant, Grant, Preparation, Refusal};
use crate::verdict::{Expected, Finding, judge};
use crate::view::DiskView;

/// What a guard that waits for a permit knows: its IDs and nonce, its disk as read last, and the verdict on it. It makes the
/// report for the operator, and checks permits.
#[derive(Clone, Debug)]
pub struct State {
    expected: Expected,
    pod_uid: String,
    process: String,
    nonce: Nonce,
    disk: DiskView,
    finding: Finding,
    /// Why the last permit was not used yet, if there was one.
    remark: Option<String>,
    /// What becomes of a restored directory that it makes.
    preparing: Option<Preparing>,
    /// The nonce that the last permit to make one answered.
    used: Option<String>,
    /// Why etcd of this image does not start, whatever the disk and a permit say.
    refused_image: Option<RefusedImage>,
}

/// Where time and chance come from.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The time since the machine booted.
    pub now: fn() -> Duration,
    /// A name that nothing else has.
    pub draw: fn() -> String,
}

impl State {
    /// A process that has just begun to wait.
    pub fn new(expected: Expected, pod_uid: String, disk: DiskView, source: Source) -> Self {
        let finding = judge(&disk, &expected);
        Self {
            expected,
            pod_uid,
            process: (source.draw)(),
            nonce: Nonce::new((source.now)(), (source.draw)()),
            disk,
            finding,
            remark: None,
            preparing: None,
            used: None,
            refused_image: None,
        }
    }

    /// Sets why etcd of this image must not start, as checked once before the process waits. `None` if it may, or if its version
    /// is not known.
    #[must_use]
    pub fn with_refused_image(mut self, refused: Option<RefusedImage>) -> Self {
        self.remark = refused.as_ref().map(|refused| {
            format!(
                "etcd does not start: its image holds {}, and the pod template names {}",
                refused.found, refused.expected
            )
        });
        self.refused_image = refused;
        self
    }

    /// Whether etcd of this image must not start. The process then only reports, until its pod is re-created.
    pub fn refuses_image(&self) -> bool {
        self.refused_image.is_some()
    }

    /// What the pod expects.
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    /// What the disk was found to be.
    pub fn finding(&self) -> &Finding {
        &self.finding
    }

    /// The disk as it was read last.
    pub fn disk(&self) -> &DiskView {
        &self.disk
    }

    /// Takes in the disk after it was read again, and judges it.
    pub fn see(&mut self, disk: DiskView) {
        self.finding = judge(&disk, &self.expected);
        self.disk = disk;
    }

    /// Sets why a permit is not used yet, which the report shows. Returns whether that has changed, so that it is
    /// logged once.
    pub fn remark(&mut self, remark: Option<String>) -> bool {
        let is_news = self.remark != remark;
        self.remark = remark;
        is_news
    }

    /// What a permit to start leads to now, or why it is refused. It does not use up the nonce.
    pub fn ask(&mut self, permit: &Permit, source: Source) -> Result<Grant, Refusal> {
        permit::check(permit, &self.applicant(source))
    }

    /// What a permit lets this process restore beside the data. It uses up the nonce, and the report says that it is
    /// under way. `None` if this permit was used already: its file is read again and again.
    pub fn ask_to_prepare(
        &mut self,
        permit: &Permit,
        source: Source,
    ) -> Result<Option<Preparation>, Refusal> {
        if self.used.as_ref() == Some(&permit.nonce) && permit.process == self.process {
            return Ok(None);
        }
        let preparation = permit::check_to_prepare(permit, &self.applicant(source))?;
        self.used = Some(permit.nonce.clone());
        self.nonce.renew((source.now)(), (source.draw)());
        self.preparing = Some(Preparing {
            restore_uid: preparation.restore_uid.clone(),
            failure: None,
        });
        Ok(Some(preparation))
    }

    /// Ends the restore beside the data. The report shows it from then on only if it failed.
    pub fn prepared(&mut self, failed: Option<Preparing>) {
        self.preparing = failed;
    }

    /// This process as one that asks for a permit, with a nonce that is not too old.
    fn applicant(&mut self, source: Source) -> Applicant<'_> {
        let nonce = self.nonce.at((source.now)(), source.draw);
        Applicant {
            pod_uid: &self.pod_uid,
            process: &self.process,
            nonce,
            expected: &self.expected,
            disk: &self.disk,
            verdict: &self.finding.verdict,
        }
    }

    /// The report at this moment, with a nonce that is not too old.
    pub fn report(&mut self, source: Source) -> Report {
        let nonce = self.nonce.at((source.now)(), source.draw).to_owned();
        let store = self.disk.store();
        let end = store.and_then(|store| store.end);
        let head = store.and_then(|store| store.head.as_ref().ok());
        Report {
            version: VERSION,
            cluster_uid: self.expected.cluster_uid.clone(),
            pod_uid: self.pod_uid.clone(),
            process: self.process.clone(),
            nonce,
            expected_incarnation: self.expected.incarnation,
            verdict: self.finding.verdict.clone(),
            detail: match &self.remark {
                Some(remark) => format!("{}; {remark}", self.finding.detail),
                None => self.finding.detail.clone(),
            },
            identity: self.disk.identity.found().cloned(),
            wal_term: end.map(|end| end.term.0),
            wal_index: end.map(|end| end.index.0),
            wal_client_entries: end
                .map(|end| end.has_client_entries)
                .or_else(|| self.disk.is_bare().then_some(false)),
            wal_cluster_id: head.map(|head| head.cluster.to_string()),
            wal_member_id: head.map(|head| head.member.to_string()),
            members: store.map(|store| store.members.clone()).unwrap_or_default(),
            fingerprint: self.disk.fingerprint.clone(),
            fetched: self
                .disk
                .fetched
                .as_ref()
                .map(|fetched| fetched.restore_uid.clone()),
            preparing: self.preparing.clone(),
            refused_image: self.refused_image.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use etcd_operator_api::contract::{Mode, Verdict};

    use super::*;
    use crate::samples;
    use crate::view::Data;

    static NOW: AtomicU64 = AtomicU64::new(1000);
    static DRAWN: AtomicU64 = AtomicU64::new(0);

    fn source() -> Source {
        Source {
            now: || Duration::from_secs(NOW.load(Ordering::Relaxed)),
            draw: || DRAWN.fetch_add(1, Ordering::Relaxed).to_string(),
        }
    }

    fn bootstrap(report: &Report) -> Permit {
        Permit {
            version: 1,
            pod_uid: report.pod_uid.clone(),
            process: report.process.clone(),
            nonce: report.nonce.clone(),
            mode: Mode::Bootstrap,
            incarnation: report.expected_incarnation,
            cluster_uid: report.cluster_uid.clone(),
            cluster_id: None,
            member_id: None,
            initial_cluster: "orders-0=http://orders-0.orders.shop.svc:2380".into(),
            token: "t".into(),
            restore: None,
        }
    }

    /// One test, as it alone moves the clock.
    #[test]
    fn a_permit_is_good_until_its_nonce_is_renewed_whether_anybody_asks_or_not() {
        let mut state = State::new(samples::expected(), "pod".into(), DiskView::default(), source());
        let report = state.report(source());
        assert_eq!(report.verdict, Verdict::Empty);
        let permit = bootstrap(&report);
        assert!(state.ask(&permit, source()).is_ok());
        NOW.fetch_add(59, Ordering::Relaxed);
        assert!(state.ask(&permit, source()).is_ok());
        assert_eq!(state.report(source()).nonce, report.nonce);
        NOW.fetch_add(1, Ordering::Relaxed);
        assert_eq!(state.ask(&permit, source()), Err(Refusal::OtherNonce));

        let renewed = state.report(source());
        assert_eq!(renewed.process, report.process);
        assert_ne!(renewed.nonce, report.nonce);
        assert!(state.ask(&bootstrap(&renewed), source()).is_ok());
        NOW.fetch_sub(3_600, Ordering::Relaxed);
        assert_eq!(
            state.ask(&bootstrap(&renewed), source()),
            Err(Refusal::OtherNonce),
            "no clock that goes back makes a nonce live longer"
        );
        let mut other = State::new(samples::expected(), "pod".into(), DiskView::default(), source());
        let after = state.report(source());
        assert_eq!(
            other.ask(&bootstrap(&after), source()),
            Err(Refusal::OtherProcess)
        );
    }

    #[test]
    fn the_report_tells_the_disk_and_why_a_permit_is_not_used() {
        let mut state = State::new(samples::expected(), "pod".into(), samples::whole(), source());
        assert!(state.remark(Some("the permit is refused: x".into())));
        assert!(!state.remark(Some("the permit is refused: x".into())));
        let report = state.report(source());
        assert_eq!(report.identity, Some(samples::identity()));
        assert_eq!(report.wal_cluster_id.as_deref(), Some(samples::OWN));
        assert_eq!(report.wal_client_entries, Some(true));
        assert_eq!(report.members.len(), 2);
        assert!(
            report.detail.ends_with("; the permit is refused: x"),
            "{}",
            report.detail
        );
        state.see(DiskView::default());
        let empty = state.report(source());
        assert_eq!(empty.verdict, Verdict::Empty);
        assert_eq!(
            empty.wal_client_entries,
            Some(false),
            "nobody wrote where nothing is"
        );
        state.see(DiskView {
            data: Data::Unlogged,
            ..DiskView::default()
        });
        let doubtful = state.report(source());
        assert_eq!(doubtful.wal_client_entries, None, "a log may have been lost");
    }

    #[test]
    fn a_refused_image_is_told_also_to_operators_that_know_only_the_detail() {
        let refused = RefusedImage {
            found: "3.7.3".into(),
            expected: "3.6".into(),
        };
        let state = State::new(samples::expected(), "pod".into(), samples::whole(), source());
        assert!(!state.refuses_image());
        let mut state = state.with_refused_image(Some(refused.clone()));
        assert!(state.refuses_image());
        let report = state.report(source());
        assert_eq!(
            (report.verdict, report.refused_image),
            (Verdict::Whole, Some(refused))
        );
        let told = "; etcd does not start: its image holds 3.7.3, and the pod template names 3.6";
        assert!(report.detail.ends_with(told), "{}", report.detail);
    }
}
