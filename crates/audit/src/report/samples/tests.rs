//! Samples against intervals from tables, and against processes whose true mean is known.

use super::*;
use crate::report::made;

const SECOND: Duration = Duration::from_secs(1);

/// Numbers that look random and are the same each time (Knuth's linear congruential generator).
struct Numbers(u64);

impl Numbers {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly normal, with variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

#[test]
fn intervals_of_textbooks() {
    // Student's t, two-sided 95 %: 12.706 (1 degree of freedom), 2.776 (4), 2.262 (9), 2.045 (29).
    for (values, half) in [
        (vec![1.0, 3.0], 12.706 * 1.0),
        (vec![1.0, 2.0, 3.0, 4.0, 5.0], 2.776 * (2.5f64 / 5.0).sqrt()),
        (vec![4.0, 1.0, 5.0, 2.0, 3.0, 3.0, 2.0, 5.0, 1.0, 4.0], 2.262 * (20.0f64 / 9.0 / 10.0).sqrt()),
    ] {
        let found = half_width(&values).expect("several values have an interval");
        assert!((found - half).abs() < 0.001 * half, "{values:?}: {found} and not {half}");
    }
}

#[test]
fn one_sample_has_no_interval_and_equal_ones_an_empty_one() {
    let one = figure("programs.extent", &[0.25]).expect("a figure");
    assert_eq!((one.mean, one.low, one.high, one.batches), (0.25, None, None, 1));
    let same = figure("programs.extent", &[0.25; 40]).expect("a figure");
    assert_eq!((same.low, same.high, same.dependent), (Some(0.25), Some(0.25), false));
    assert_eq!(figure("programs.extent", &[]), None);
}

#[test]
fn independent_samples_are_not_batched() {
    let mut numbers = Numbers(1);
    let mut batched = 0;
    let mut held = 0;
    for _ in 0..200 {
        let values: Vec<f64> = (0..64).map(|_| 10.0 + numbers.normal()).collect();
        let figure = figure("x", &values).expect("a figure");
        batched += u32::from(figure.batches < 64);
        held += u32::from(figure.low <= Some(10.0) && Some(10.0) <= figure.high);
    }
    assert!(batched < 25, "{batched} of 200, of which chance makes 10");
    assert!((180..=199).contains(&held), "the true mean lies in {held} of 200 intervals");
}

#[test]
fn samples_that_lean_on_each_other_get_a_wider_interval_that_holds() {
    let mut numbers = Numbers(2);
    let (mut held, mut held_unbatched, mut dependent) = (0, 0, 0);
    for _ in 0..200 {
        let mut at = 0.0;
        let values: Vec<f64> = (0..512)
            .map(|_| {
                at = 0.8 * at + numbers.normal();
                10.0 + at
            })
            .collect();
        let figure = figure("x", &values).expect("a figure");
        assert!(figure.batches < 512);
        dependent += u32::from(figure.dependent);
        held += u32::from(figure.low <= Some(10.0) && Some(10.0) <= figure.high);
        let half = half_width(&values).expect("an interval");
        held_unbatched += u32::from((mean(&values) - 10.0).abs() <= half);
    }
    assert!(dependent < 40, "{dependent} of 200 not settled");
    assert!(held >= 170, "the true mean lies in {held} of 200 intervals");
    assert!(held_unbatched < 130, "the plain interval would hold it {held_unbatched} times");
}

#[test]
fn a_trend_is_said_to_have_no_interval_that_can_be_trusted() {
    let values: Vec<f64> = (0..50).map(f64::from).collect();
    let figure = figure("x", &values).expect("a figure");
    assert!(figure.dependent);
    assert_eq!((figure.mean, figure.min, figure.max), (24.5, 0.0, 49.0));
    assert_eq!(figure.batches, 12);
}

#[test]
fn gathered_reports_name_their_figures() {
    let mut gathered = Gathered::new(300 * SECOND);
    let mut report = made::machine();
    for sample in 0..4 {
        report.taken_at += 300;
        report.sharing.programs.extent = (sample != 2).then_some(0.25);
        report.processes = 300 + sample;
        gathered.add(&report);
    }
    gathered.overran();
    let samples = gathered.finish(true);
    assert_eq!((samples.count, samples.span_s, samples.every_ms), (4, 900, 300_000));
    assert_eq!((samples.overruns, samples.ended_early), (1, true));
    let find = |name: &str| samples.figures.iter().find(|figure| figure.name == name).expect("it is there");
    assert_eq!((find("programs.extent").count, find("programs.extent").mean), (3, 0.25));
    assert_eq!(find("processes").mean, 301.5);
}

#[test]
fn samples_keep_their_distance() {
    let schedule = Schedule::new(10 * SECOND, 60 * SECOND);
    assert_eq!(schedule.count(), 7);
    assert_eq!(schedule.after(20 * SECOND, 21 * SECOND), Next { due: Some(30 * SECOND), overrun: false });
    assert_eq!(schedule.after(20 * SECOND, 30 * SECOND), Next { due: Some(30 * SECOND), overrun: false });
    assert_eq!(schedule.after(20 * SECOND, 41 * SECOND), Next { due: Some(50 * SECOND), overrun: true });
    assert_eq!(schedule.after(60 * SECOND, 61 * SECOND), Next { due: None, overrun: false });
    assert_eq!(schedule.after(50 * SECOND, 65 * SECOND), Next { due: None, overrun: true });
    assert_eq!(Schedule::new(Duration::ZERO, SECOND).count(), 1001);
}
