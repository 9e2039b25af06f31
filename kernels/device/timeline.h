// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// When the kernels of a step begin, and when those before them have ended, by the GPU's clock. Of a
// build with -DRIVULET_TIMELINE=ON only (docs/gpu_notes.md#where-a-step-waits); in others the
// functions are empty and cost nothing. Unlike a profiler, which runs one kernel after the other,
// this shows kernels as they overlap in a recorded step. Products by cuBLASLt are not seen.
//
// Every block of some kernels leaves stamps, which show what the blocks of a launch wait for and
// how many are there at once (bench/block_timeline.py). That takes half a gigabyte of the GPU's
// memory for each device that is open, and time, which has not been measured yet.
//
// Threading: engine thread only.
#ifndef RIVULET_KERNELS_DEVICE_TIMELINE_H_
#define RIVULET_KERNELS_DEVICE_TIMELINE_H_

namespace rivulet::cuda {

#ifdef RIVULET_TIMELINE
// Gives the kernels memory for their stamps; where there is none, they leave no stamps. One device
// at a time.
void StartTimeline();
// Waits for the GPU and prints its last stamps to stderr, for bench/step_timeline.py and
// bench/block_timeline.py. Prints nothing after an error of the GPU. No kernel may be launched
// until the next StartTimeline.
void PrintTimeline();
#else
inline void StartTimeline() {}
inline void PrintTimeline() {}
#endif

}  // namespace rivulet::cuda

#endif  // RIVULET_KERNELS_DEVICE_TIMELINE_H_
