//! Programs that the C compiler makes, linked to images: what they find, and when.

mod common;

use common::Place;
use commonhold_code::stub::When;

const COUNTER: &str = r#"
static int start = 40;
static int made;
static int *pointer = &start;
__attribute__((constructor)) static void make(void) { made++; start++; }
int counter_next(void) { return ++*pointer; }
int counter_made(void) { return made; }
double counter_mix(double a, int b, double c, long d, const char *e) { return a * b + c * d + e[0]; }
"#;

const USER: &str = r#"
#include <stdio.h>
int counter_next(void); int counter_made(void);
double counter_mix(double, int, double, long, const char *);
int main(void) {
    printf("%g ", counter_mix(1.5, 2, 0.25, 4, "A"));
    printf("%d %d %d\n", counter_next(), counter_next(), counter_made());
}
"#;

#[test]
fn a_program_calls_an_image_however_it_is_linked_and_whenever_it_is_included() {
    let place = Place::new();
    place.image("counter", "1.0.0", COUNTER);
    for when in [When::Start, When::First] {
        let stub = place.stub("counter@1", when);
        for (name, how) in [
            ("pie", &["-pie"][..]),
            ("fixed", &["-no-pie"]),
            ("static", &["-static"]),
            ("static-pie", &["-static-pie"]),
            ("collected", &["-pie", "-Wl,--gc-sections,-z,now"]),
        ] {
            let mut arguments = vec![stub.as_str()];
            arguments.extend(how);
            let program = place.program(name, USER, &arguments);
            // Arguments are evaluated from the last to the first.
            assert_eq!(place.run(&program), "69 43 42 1\n", "{name} {when:?}");
        }
    }
}
