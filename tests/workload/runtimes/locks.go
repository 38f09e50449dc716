// SPDX-License-Identifier: GPL-2.0-or-later

// A mutex that is slept under, asked for by goroutines, for so many seconds. {"pid"}
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

var ioLock sync.Mutex

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	end := time.Now().Add(time.Duration(seconds * 1e9))
	var all sync.WaitGroup
	for i := 0; i < 20; i++ {
		all.Add(1)
		go func() {
			for time.Now().Before(end) {
				ioLock.Lock()
				time.Sleep(time.Millisecond)
				ioLock.Unlock()
			}
			all.Done()
		}()
	}
	all.Wait()
	fmt.Printf("{\"pid\": %d}\n", os.Getpid())
}
