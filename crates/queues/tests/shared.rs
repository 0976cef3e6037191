//! Queues in real memory, with the kernel's own futexes.

use commonhold_queues::{Answering, Answers, Asking, Memory, PAGE, PageIn, Shared, create, wake_pager};
use std::sync::Mutex;
use std::time::Duration;

#[test]
fn every_question_has_its_bytes() {
    const COUNT: u64 = 20_000;
    let file = create().unwrap();
    let (memory, theirs) = (Shared::map(&file).unwrap(), Shared::map(&file).unwrap());
    let asking = Mutex::new(Asking::new(memory.clone()));
    std::thread::scope(|threads| {
        threads.spawn(move || {
            let mut answering = Answering::new(theirs);
            for _ in 0..COUNT {
                let question = loop {
                    match answering.take() {
                        Some(question) => break question,
                        None => answering.sleep(|| false),
                    }
                };
                answering.fill(&question, |bytes| {
                    assert!(bytes.iter().all(|byte| *byte == 0), "what lay there before");
                    bytes.fill(question.offset as u8);
                });
                answering.complete(&question, true);
            }
        });
        threads.spawn(|| {
            for call in 1..=COUNT {
                let length = PAGE as u32 * (1 + call as u32 % 8);
                let question = PageIn { call, object: "/x", offset: call, length };
                while !asking.lock().unwrap().ask(&question) {
                    std::thread::yield_now();
                }
                wake_pager(&memory);
            }
        });
        let mut answers = Answers::new(memory.clone());
        for _ in 0..COUNT {
            let completion = loop {
                match answers.take() {
                    Some(completion) => break completion,
                    None => answers.sleep(Duration::from_secs(1), || false),
                }
            };
            let place = asking.lock().unwrap().place_of(&completion).unwrap();
            let mut bytes = vec![0; place.length];
            memory.read(place.at, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == completion.call as u8));
            asking.lock().unwrap().free(&completion);
        }
    });
}
