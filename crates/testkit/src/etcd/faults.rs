//! What goes wrong with single calls of clients, on demand: which, how, and how often. Applying it is the line's work.

use std::time::Duration;

use etcd_operator_etcd::rejection::Rejection;

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// It is done, but the answer never arrives and the connection breaks.
    LoseAnswer,
    /// It is done, but no answer comes and the connection stays.
    Silence,
    /// It never arrives, and the connection breaks.
    LoseRequest,
    /// It arrives later; further faults still apply.
    Delay(Duration),
    /// It is refused with this and not done.
    Refuse(Rejection),
}

/// Which calls a fault is about. Empty is all.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The name of the call, as errors have it: `MemberAdd`, `Range`, `Connect`.
    pub call: Option<String>,
    /// The host that is called.
    pub host: Option<String>,
    /// Who calls, by a label.
    pub caller: Option<String>,
}

impl Calls {
    /// All calls of this name.
    pub fn of(call: &str) -> Self {
        Self {
            call: Some(call.to_owned()),
            ..Self::default()
        }
    }

    fn matches(&self, call: &str, host: &str, caller: &[String]) -> bool {
        let fits =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let is_by = self.caller.as_ref().is_none_or(|wanted| caller.contains(wanted));
        fits(&self.call, call) && fits(&self.host, host) && is_by
    }
}

#[derive(Debug)]
struct Rule {
    calls: Calls,
    fault: CallFault,
    left: u32,
}

/// The faults that have not been used up, in the order in which they were given.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Rule>);

impl Faults {
    pub(crate) fn add(&mut self, calls: Calls, fault: CallFault, times: u32) {
        self.0.push(Rule {
            calls,
            fault,
            left: times,
        });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Uses up what applies to a call: all delays, then at most one other fault.
    pub(crate) fn take(
        &mut self,
        call: &str,
        host: &str,
        caller: &[String],
    ) -> (Duration, Option<CallFault>) {
        let (mut delay, mut found) = (Duration::ZERO, None);
        for rule in &mut self.0 {
            if rule.left == 0 || !rule.calls.matches(call, host, caller) {
                continue;
            }
            if let CallFault::Delay(more) = rule.fault {
                delay += more;
                rule.left -= 1;
            } else if found.is_none() {
                found = Some(rule.fault.clone());
                rule.left -= 1;
            }
        }
        self.0.retain(|rule| rule.left > 0);
        (delay, found)
    }
}
