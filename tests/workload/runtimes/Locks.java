// SPDX-License-Identifier: GPL-2.0-or-later
/** A monitor that is slept under, asked for by two threads, for so many seconds. {"pid"} */
public class Locks {
	static final Object MONITOR = new Object();
	static long asked;

	static void readUnderLock() throws InterruptedException {
		synchronized (MONITOR) {
			Thread.sleep(20);
		}
	}

	static void askForIt() {
		synchronized (MONITOR) {
			asked++;
		}
	}

	public static void main(String[] args) throws Exception {
		long end = System.nanoTime() + (long) (Double.parseDouble(args[0]) * 1e9);
		Thread[] threads = new Thread[3];

		for (int i = 0; i < threads.length; i++) {
			boolean reads = i == 0;

			threads[i] = new Thread(() -> {
				try {
					while (System.nanoTime() < end) {
						if (reads)
							readUnderLock();
						else
							askForIt();
						Thread.sleep(1);
					}
				} catch (InterruptedException e) {
					throw new IllegalStateException(e);
				}
			}, reads ? "reader" : "asker");
			threads[i].start();
		}
		for (Thread t : threads)
			t.join();
		System.out.println("{\"pid\": " + ProcessHandle.current().pid() + "}");
	}
}
