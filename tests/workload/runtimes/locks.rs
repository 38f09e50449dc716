// SPDX-License-Identifier: GPL-2.0-or-later
//! A mutex that is slept under, asked for by two threads, for so many seconds. {"pid"}
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{env, process, thread};

static IO_LOCK: Mutex<u64> = Mutex::new(0);
static READS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn read_under_lock() {
    let mut n = IO_LOCK.lock().unwrap();
    thread::sleep(Duration::from_millis(20));
    *n += 1;
    drop(n);
    // Else the call that unlocks would be a jump, and no frame be left.
    READS.fetch_add(1, Ordering::Relaxed);
}

#[inline(never)]
fn ask_for_it() -> u64 {
    *IO_LOCK.lock().unwrap()
}

fn main() {
    let end = Instant::now() + Duration::from_secs_f64(env::args().nth(1).unwrap().parse().unwrap());
    let threads: Vec<_> = (0..3)
        .map(|i| {
            thread::spawn(move || {
                while Instant::now() < end {
                    if i == 0 {
                        read_under_lock();
                        thread::sleep(Duration::from_micros(500));
                    } else {
                        ask_for_it();
                        thread::sleep(Duration::from_micros(700));
                    }
                }
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    println!("{{\"pid\": {}}}", process::id());
}
