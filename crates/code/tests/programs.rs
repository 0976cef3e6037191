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

#[test]
fn without_libc_an_image_is_included_by_a_call_or_at_the_first_reference() {
    let place = Place::new();
    place.image("counter", "1.0.0", COUNTER);
    let text = |include: &str| {
        format!(
            "int counter_next(void); int commonhold_image_include(const char *);\n\
             void _start(void) {{ {include} int status = counter_next() - 42;\n\
             __asm__ volatile(\"syscall\" :: \"a\"(231), \"D\"(status)); }}"
        )
    };
    let how = ["-nostdlib", "-static-pie", "-fno-stack-protector"];
    let call = "if (commonhold_image_include(\"counter@1\")) __builtin_trap();";
    for (name, when, include) in
        [("first", When::First, ""), ("call", When::Call, call), ("both", When::First, call)]
    {
        let stub = place.stub("counter@1", when);
        let program = place.program(name, &text(include), &[&how[..], &[&stub]].concat());
        assert_eq!(place.try_run(&program).status.code(), Some(0), "{name}");
    }
}

#[test]
fn however_many_threads_come_first_the_image_is_initialised_once_and_they_share_its_data() {
    let place = Place::new();
    let library = "#include <unistd.h>\nstatic int made; static int count;\n\
        __attribute__((constructor)) static void make(void) { usleep(20000); __atomic_add_fetch(&made, 1, 0); }\n\
        int shared_made(void) { return made; } int shared_add(void) { return __atomic_add_fetch(&count, 1, 5); }";
    let library = place.library("shared", library, &[]);
    let mut wanted = place.wanted(&library, "shared", "1.0.0");
    wanted.table = ["usleep".to_owned()].into();
    place.build(&wanted).unwrap();
    let text = r#"
#include <pthread.h>
#include <stdio.h>
int shared_made(void); int shared_add(void); int of_library(void);
static pthread_barrier_t barrier;
static void *thread(void *number) {
    pthread_barrier_wait(&barrier);
    if ((long)number % 2 ? of_library() != 1 : shared_made() != 1) return (void *)1;
    for (int i = 0; i < 1000; i++) shared_add();
    return 0;
}
int main(void) {
    pthread_t all[16];
    long wrong = 0;
    void *result;
    pthread_barrier_init(&barrier, 0, 16);
    for (long i = 0; i < 16; i++) pthread_create(&all[i], 0, thread, (void *)i);
    for (int i = 0; i < 16; i++) { pthread_join(all[i], &result); wrong += (long)result; }
    printf("%ld %d %d\n", wrong, shared_made(), shared_add());
}
"#;
    // A library of the program's has a stub of its own: two records, and one image.
    let stub = place.stub("shared@1", When::First);
    let part = "int shared_made(void); int of_library(void) { return shared_made(); }";
    let part = place.library("part", part, &[&stub, "-Wl,-Bsymbolic"]);
    let program = place.program("threads", text, &[&stub, part.to_str().unwrap(), "-pthread"]);
    for _ in 0..20 {
        assert_eq!(place.run(&program), "0 1 16001\n");
    }
    // A child has the data as it was, and its own from then on.
    let text = "#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\nint shared_add(void);\n\
        int main(void) { shared_add(); int child = fork(); int n = shared_add(); if (!child) return n;\n\
        int status; wait(&status); printf(\"%d %d %d\\n\", n, WEXITSTATUS(status), shared_add()); }";
    let program = place.program("fork", text, &[&stub]);
    assert_eq!(place.run(&program), "2 2 3\n");
}

#[test]
fn arguments_of_all_kinds_come_through_the_first_reference() {
    let place = Place::new();
    let text = "#include <stdarg.h>\nlong many(int n, ...) { va_list all; va_start(all, n); long sum = 0;\n\
        for (int i = 0; i < n; i++) sum = sum * 3 + (i % 2 ? (long)va_arg(all, double) : va_arg(all, long));\n\
        va_end(all); return sum; }";
    place.image("many", "1.0.0", text);
    let stub = place.stub("many@1", When::First);
    let text = "#include <stdio.h>\nlong many(int, ...);\n\
        int main(void) { long a = many(14, 1L, 2.0, 3L, 4.0, 5L, 6.0, 7L, 8.0, 9L, 10.0, 11L, 12.0, 13L, 14.0);\n\
        long b = many(14, 1L, 2.0, 3L, 4.0, 5L, 6.0, 7L, 8.0, 9L, 10.0, 11L, 12.0, 13L, 14.0); printf(\"%d %ld\\n\", a == b, a); }";
    let program = place.program("user", text, &[&stub]);
    let expected = (1..=14).fold(0_i64, |sum, n| sum * 3 + n);
    assert_eq!(place.run(&program), format!("1 {expected}\n"));
}

#[test]
fn images_call_images_and_all_are_initialised_in_order() {
    let place = Place::new();
    place.image("base", "1.0.0", COUNTER);
    let library = "int counter_next(void); static int start;\n\
        __attribute__((constructor)) static void make(void) { start = counter_next(); }\n\
        int upper(void) { return start * 100 + counter_next(); } int (*upper_pointer(void))(void) { return counter_next; }";
    let library = place.library("upper", library, &[]);
    let error = place.build(&place.wanted(&library, "upper", "1.0.0")).unwrap_err().to_string();
    assert!(error.contains("counter_next") && error.contains("--import"), "{error}");
    let mut wanted = place.wanted(&library, "upper", "1.0.0");
    wanted.imports = vec![place.find("base@1")];
    place.build(&wanted).unwrap();
    let text = "#include <stdio.h>\nint upper(void); int (*upper_pointer(void))(void);\n\
        int main(void) { printf(\"%d \", upper()); printf(\"%d\\n\", upper_pointer()()); }";
    for when in [When::Start, When::First] {
        let stub = place.stub("upper@1", when);
        let program = place.program("user", text, &[&stub]);
        assert_eq!(place.run(&program), "4243 44\n");
        // The imported image moved on: nobody is linked again.
        if when == When::First {
            place.image("base", "1.1.0", &COUNTER.replace("start = 40", "start = 90"));
            assert_eq!(place.run(&program), "9293 94\n");
        }
    }
}

#[test]
fn a_constructor_may_come_to_its_own_image_by_any_stub() {
    let place = Place::new();
    let text = "int hook(void); static int seen; int base(int n) { return n + 1; }\n\
        __attribute__((constructor)) static void begin(void) { seen = hook(); } int had(void) { return seen; }";
    let library = place.library("base", text, &[]);
    let mut wanted = place.wanted(&library, "base", "1.0.0");
    wanted.table = ["hook".to_owned()].into();
    place.build(&wanted).unwrap();
    let text = "int base(int); int had(void); int up(void) { return base(had()); }";
    let library = place.library("up", text, &[]);
    let mut wanted = place.wanted(&library, "up", "1.0.0");
    wanted.imports = vec![place.find("base@1")];
    place.build(&wanted).unwrap();
    let (base, up) = (place.stub("base@1", When::First), place.stub("up@1", When::First));
    // `up` has a record of base beside base's own: whichever comes first.
    let text = "int base(int), up(void); int hook(void) { return base(40); } int main(void) { return up(); }";
    for stubs in [[&base, &up], [&up, &base]] {
        let program = place.program("user", text, &[stubs[0], stubs[1]]);
        let output = std::process::Command::new("timeout").arg("60").arg(&program).output().unwrap();
        assert_eq!(output.status.code(), Some(42), "{stubs:?}: {output:?}");
    }
    // A library with a stub of its own, which knows nothing of the program's.
    let text = "int base(int); int hook(void) { return base(40); }";
    let library = place.library("hook", text, &[&base, "-Wl,-Bsymbolic"]);
    let program = place.program(
        "user",
        "int up(void); int main(void) { return up(); }",
        &[&up, library.to_str().unwrap()],
    );
    let output = std::process::Command::new("timeout").arg("60").arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(42), "{output:?}");
}

#[test]
fn constructors_of_two_images_call_each_other_whichever_thread_comes_first() {
    let place = Place::new();
    for name in ["one", "two"] {
        let text = format!(
            "int hook_{name}(void); static int seen = 7; int {name}(void) {{ return seen; }}\n\
             __attribute__((constructor)) static void begin(void) {{ seen = 10 + hook_{name}(); }}"
        );
        let library = place.library(name, &text, &[]);
        let mut wanted = place.wanted(&library, name, "1.0.0");
        wanted.table = [format!("hook_{name}")].into();
        place.build(&wanted).unwrap();
    }
    let text = "#include <pthread.h>\n#include <stdio.h>\nint one(void), two(void);\n\
        int hook_one(void) { return two(); } int hook_two(void) { return one(); }\n\
        static pthread_barrier_t barrier;\n\
        static void *thread(void *f) { pthread_barrier_wait(&barrier); ((int (*)(void))f)(); return 0; }\n\
        int main(void) { pthread_t all[2]; pthread_barrier_init(&barrier, 0, 2);\n\
        pthread_create(&all[0], 0, thread, one); pthread_create(&all[1], 0, thread, two);\n\
        pthread_join(all[0], 0); pthread_join(all[1], 0); printf(\"%d\\n\", one() + two()); }";
    let stubs = [place.stub("one@1", When::First), place.stub("two@1", When::First)];
    let program = place.program("user", text, &[&stubs[0], &stubs[1], "-pthread"]);
    for _ in 0..20 {
        // Who comes first finds the other's constructor done, and that one has seen it as it was before its own: 7.
        let output = std::process::Command::new("timeout").arg("60").arg(&program).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "44\n", "{output:?}");
    }
}
