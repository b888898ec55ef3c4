//! A schedule: a cron expression of five fields in a time zone. Parsing makes sure that it fires at all.

use std::fmt;

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use etcd_operator_api::refusal::Refusal;
use jiff::{Timestamp, Zoned, tz::TimeZone};

/// The longest time between two dates of a valid schedule: around 2100, 29 February does not exist for eight years.
const MAX_YEARS_BETWEEN: i16 = 9;

/// A cron expression of five fields in a time zone.
#[derive(Clone)]
pub struct Schedule {
    cron: Cron,
    text: String,
    zone: TimeZone,
}

impl Schedule {
    /// Parses an expression and a time zone (UTC by default), and refuses an expression that never fires.
    pub fn parse(expression: &str, zone: Option<&str>, now: Timestamp) -> Result<Self, Refusal> {
        let example = "for example: \"0 3 * * *\" for three in the morning";
        let zone = match zone {
            None => TimeZone::UTC,
            // Etc/Unknown is in the IANA database as a placeholder and would run as UTC.
            Some(name) => TimeZone::get(name).ok().filter(|zone| !zone.is_unknown()).ok_or_else(|| {
                let problem = format!("'{name}' is not a known time zone: use a name of the IANA database; for example: Europe/Berlin");
                Refusal::invalid("spec.timeZone", problem)
            })?,
        };
        let fields = expression.split_whitespace().count();
        if fields != 5 {
            let problem = format!(
                "'{expression}' has {fields} fields and must have five: minute, hour, day of month, month, day of week (seconds and names such as @daily are not known); {example}"
            );
            return Err(Refusal::invalid("spec.schedule", problem));
        }
        // The parser accepts an empty list item, which matches nothing, and would search all years for it.
        if let Some(field) = expression
            .split_whitespace()
            .find(|field| field.split(',').any(str::is_empty))
        {
            let problem = format!(
                "'{expression}' cannot be parsed: '{field}' has an empty item: remove the extra comma; {example}"
            );
            return Err(Refusal::invalid("spec.schedule", problem));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(expression).map_err(|e| {
            Refusal::invalid(
                "spec.schedule",
                format!(
                    "'{expression}' cannot be parsed ({}): a field is *, a number, a list as 1,15, a range as 1-5, or a step as */10; {example}",
                    e.to_string().trim_end_matches('.')
                ),
            )
        })?;
        let schedule = Self {
            cron,
            text: expression.to_owned(),
            zone,
        };
        let last = i32::from(now.to_zoned(schedule.zone.clone()).year()) + i32::from(MAX_YEARS_BETWEEN);
        if schedule
            .next(now)
            .is_none_or(|next| i32::from(next.year()) > last)
        {
            let problem = format!("'{expression}' never fires: no date matches it; {example}");
            return Err(Refusal::invalid("spec.schedule", problem));
        }
        Ok(schedule)
    }

    /// The last time it fired, up to and including `now`.
    pub fn newest(&self, now: Timestamp) -> Option<Zoned> {
        self.cron
            .find_previous_occurrence(&now.to_zoned(self.zone.clone()), true)
            .ok()
    }

    /// The first time it fires after `now`.
    pub fn next(&self, now: Timestamp) -> Option<Zoned> {
        self.cron
            .find_next_occurrence(&now.to_zoned(self.zone.clone()), false)
            .ok()
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({} {:?})", self.text, self.zone.iana_name())
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.zone == other.zone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-03-01T00:00:00Z".parse().expect("a time")
    }

    fn refused(expression: &str, zone: Option<&str>) -> Refusal {
        Schedule::parse(expression, zone, now()).expect_err(expression)
    }

    #[test]
    fn a_schedule_fires_at_the_local_time_of_its_zone() {
        let schedule = Schedule::parse("30 3 * * 1-5", Some("Europe/Berlin"), now()).expect("a schedule");
        assert_eq!(
            schedule.next(now()).map(|t| t.timestamp().to_string()).as_deref(),
            Some("2026-03-02T02:30:00Z")
        );
    }

    #[test]
    fn a_schedule_for_the_leap_day_is_accepted() {
        let schedule = Schedule::parse("0 0 29 2 *", None, now()).expect("a schedule");
        assert_eq!(
            schedule.next(now()).map(|t| t.timestamp().to_string()).as_deref(),
            Some("2028-02-29T00:00:00Z")
        );
        let before_2100 = "2096-03-01T00:00:00Z".parse().expect("a time");
        assert!(Schedule::parse("0 0 29 2 *", None, before_2100).is_ok());
    }

    #[test]
    fn a_schedule_that_never_fires_is_refused() {
        for never in ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
            let refusal = refused(never, None);
            assert_eq!(refusal.field, "spec.schedule");
            assert!(
                refusal.problem.contains("never fires") && refusal.problem.contains("for example"),
                "{refusal}"
            );
        }
    }

    #[test]
    fn an_invalid_expression_is_refused_with_an_example() {
        for bad in [
            "",
            "* * *",
            "* * * * * *",
            "60 * * * *",
            "a b c d e",
            "@daily",
            "0 0 0 * *",
            "*/0 * * * *",
        ] {
            let refusal = refused(bad, None);
            assert_eq!(refusal.field, "spec.schedule", "{bad}");
            assert!(refusal.problem.contains("for example"), "{refusal}");
        }
    }

    #[test]
    fn a_list_with_an_empty_item_is_refused() {
        for (bad, field) in [
            (", * 7 1 7,", "','"),
            ("0 3,,4 * * *", "'3,,4'"),
            ("0,30, 3 * * *", "'0,30,'"),
            ("0 3 * * ,MON", "',MON'"),
        ] {
            let refusal = refused(bad, None);
            assert_eq!(refusal.field, "spec.schedule", "{bad}");
            assert!(
                refusal.problem.contains(&format!("{field} has an empty item")),
                "{refusal}"
            );
        }
        assert!(Schedule::parse("0,30 3 * * MON,TUE", None, now()).is_ok());
    }

    #[test]
    fn an_unknown_time_zone_is_refused_by_name() {
        for name in ["Middle/Earth", "Etc/Unknown", "etc/unknown"] {
            let refusal = refused("0 3 * * *", Some(name));
            assert_eq!(refusal.field, "spec.timeZone");
            assert!(
                refusal.problem.contains(name) && refusal.problem.contains("Europe/Berlin"),
                "{refusal}"
            );
        }
    }
}
