// Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
//
// How fast a GPU's memory is read and written, microsecond by microsecond, while steps run as they
// always do: a library for rivulet-device-bench --sampler, which asks CUPTI for samples of the
// hardware's counters. bench/memory_rate.py prints what it writes.
//
//   MEMORY_RATE_FILE=rate.csv rivulet-device-bench --config C --rows 1 --steps 2
//     --sampler build/cuda/lib/librivulet_memory_rate.so
//
// Without the right to read counters, or with metrics that need several passes, it says so on the
// standard error and writes nothing. Its functions are to be called by one thread.
//
// MEMORY_RATE_METRICS: names of metrics with commas between. MEMORY_RATE_NANOSECONDS: of a sample.
// MEMORY_RATE_SAMPLES: the most that are kept.
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

// Bytes of memory, sectors of L2, cycles of the tensor cores, blocks that began.
constexpr char kMetrics[] =
    "dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sectors.sum,"
    "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg,"
    "FE_B.TriageCompute.gr__ctas_launched_realtime.sum";

std::string Setting(const char* name, const char* otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : text;
}

bool Failed(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return false;
  const char* message = "";
  cuptiGetResultString(result, &message);
  std::fprintf(stderr, "memory_rate: %s: %s\n", what, message);
  return true;
}

// RIVULET_CUPTI(Name, params) calls cuptiName. False: it failed, and said so.
#define RIVULET_CUPTI(name, params) (!Failed(cupti##name(&(params)), #name))
#define RIVULET_PARAMS(type) WithSize<type>(type##_STRUCT_SIZE)
template <typename Params>
Params WithSize(size_t size) {
  Params params = {};
  params.structSize = size;
  return params;
}

class Sampler {
 public:
  void Start() {
    std::istringstream names(Setting("MEMORY_RATE_METRICS", kMetrics));
    for (std::string name; std::getline(names, name, ',');) names_.push_back(name);
    for (const std::string& name : names_) metrics_.push_back(name.c_str());
    running_ = OpenHost() && Configure() && MakeImage() && Begin();
  }

  void Stop() {
    if (!running_) return;
    running_ = false;
    auto stop = RIVULET_PARAMS(CUpti_PmSampling_Stop_Params);
    stop.pPmSamplingObject = samples_;
    auto decode = RIVULET_PARAMS(CUpti_PmSampling_DecodeData_Params);
    decode.pPmSamplingObject = samples_;
    decode.pCounterDataImage = image_.data(), decode.counterDataImageSize = image_.size();
    if (RIVULET_CUPTI(PmSamplingStop, stop) && RIVULET_CUPTI(PmSamplingDecodeData, decode)) Write();
    if (decode.overflow != 0) std::fprintf(stderr, "memory_rate: samples were lost\n");
  }

 private:
  bool OpenHost() {
    auto profiler = RIVULET_PARAMS(CUpti_Profiler_Initialize_Params);
    auto chip = RIVULET_PARAMS(CUpti_Device_GetChipName_Params);
    auto counters = RIVULET_PARAMS(CUpti_PmSampling_GetCounterAvailability_Params);
    if (!RIVULET_CUPTI(ProfilerInitialize, profiler) || !RIVULET_CUPTI(DeviceGetChipName, chip) ||
        !RIVULET_CUPTI(PmSamplingGetCounterAvailability, counters)) {
      return false;
    }
    counters_.resize(counters.counterAvailabilityImageSize);
    counters.pCounterAvailabilityImage = counters_.data();
    if (!RIVULET_CUPTI(PmSamplingGetCounterAvailability, counters)) return false;
    auto open = RIVULET_PARAMS(CUpti_Profiler_Host_Initialize_Params);
    open.profilerType = CUPTI_PROFILER_TYPE_PM_SAMPLING;
    open.pChipName = chip.pChipName;
    open.pCounterAvailabilityImage = counters_.data();
    if (!RIVULET_CUPTI(ProfilerHostInitialize, open)) return false;
    host_ = open.pHostObject;
    return true;
  }

  // CUPTI reads the configuration for as long as it samples.
  bool Configure() {
    auto add = RIVULET_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
    add.pHostObject = host_, add.ppMetricNames = metrics_.data(), add.numMetrics = metrics_.size();
    auto size = RIVULET_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
    size.pHostObject = host_;
    if (!RIVULET_CUPTI(ProfilerHostConfigAddMetrics, add) ||
        !RIVULET_CUPTI(ProfilerHostGetConfigImageSize, size)) {
      return false;
    }
    configuration_.resize(size.configImageSize);
    auto get = RIVULET_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
    get.pHostObject = host_;
    get.pConfigImage = configuration_.data(), get.configImageSize = configuration_.size();
    auto passes = RIVULET_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
    passes.pConfigImage = configuration_.data(), passes.configImageSize = configuration_.size();
    if (!RIVULET_CUPTI(ProfilerHostGetConfigImage, get) ||
        !RIVULET_CUPTI(ProfilerHostGetNumOfPasses, passes)) {
      return false;
    }
    if (passes.numOfPasses == 1) return true;
    std::fprintf(stderr, "memory_rate: these metrics need %zu passes\n", passes.numOfPasses);
    return false;
  }

  bool MakeImage() {
    auto enable = RIVULET_PARAMS(CUpti_PmSampling_Enable_Params);
    if (!RIVULET_CUPTI(PmSamplingEnable, enable)) return false;
    samples_ = enable.pPmSamplingObject;
    auto set = RIVULET_PARAMS(CUpti_PmSampling_SetConfig_Params);
    set.pPmSamplingObject = samples_;
    set.pConfig = configuration_.data(), set.configSize = configuration_.size();
    set.hardwareBufferSize = size_t{256} << 20;
    set.samplingInterval =
        std::strtoull(Setting("MEMORY_RATE_NANOSECONDS", "1000").c_str(), nullptr, 10);
    set.triggerMode = CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    auto size = RIVULET_PARAMS(CUpti_PmSampling_GetCounterDataSize_Params);
    size.pPmSamplingObject = samples_;
    size.pMetricNames = metrics_.data(), size.numMetrics = metrics_.size();
    size.maxSamples = static_cast<uint32_t>(
        std::strtoul(Setting("MEMORY_RATE_SAMPLES", "60000").c_str(), nullptr, 10));
    if (!RIVULET_CUPTI(PmSamplingSetConfig, set) ||
        !RIVULET_CUPTI(PmSamplingGetCounterDataSize, size)) {
      return false;
    }
    image_.resize(size.counterDataSize);
    auto prepare = RIVULET_PARAMS(CUpti_PmSampling_CounterDataImage_Initialize_Params);
    prepare.pPmSamplingObject = samples_;
    prepare.pCounterData = image_.data(), prepare.counterDataSize = image_.size();
    return RIVULET_CUPTI(PmSamplingCounterDataImageInitialize, prepare);
  }

  bool Begin() {
    auto start = RIVULET_PARAMS(CUpti_PmSampling_Start_Params);
    start.pPmSamplingObject = samples_;
    return RIVULET_CUPTI(PmSamplingStart, start);
  }

  void Write() {
    auto info = RIVULET_PARAMS(CUpti_PmSampling_GetCounterDataInfo_Params);
    info.pCounterDataImage = image_.data(), info.counterDataImageSize = image_.size();
    std::FILE* const file = std::fopen(Setting("MEMORY_RATE_FILE", "memory_rate.csv").c_str(), "w");
    if (file == nullptr) return std::perror("memory_rate");
    if (RIVULET_CUPTI(PmSamplingGetCounterDataInfo, info)) {
      std::fputs("start,end", file);
      for (const std::string& name : names_) std::fprintf(file, ",%s", name.c_str());
      std::fputs("\n", file);
      for (size_t i = 0; i < info.numCompletedSamples && WriteSample(i, file); ++i) {
      }
    }
    std::fclose(file);
  }

  bool WriteSample(size_t index, std::FILE* file) {
    auto time = RIVULET_PARAMS(CUpti_PmSampling_CounterData_GetSampleInfo_Params);
    time.pPmSamplingObject = samples_, time.sampleIndex = index;
    time.pCounterDataImage = image_.data(), time.counterDataImageSize = image_.size();
    std::vector<double> values(metrics_.size());
    auto get = RIVULET_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
    get.pHostObject = host_, get.rangeIndex = index;
    get.pCounterDataImage = image_.data(), get.counterDataImageSize = image_.size();
    get.ppMetricNames = metrics_.data(), get.numMetrics = metrics_.size();
    get.pMetricValues = values.data();
    if (!RIVULET_CUPTI(PmSamplingCounterDataGetSampleInfo, time) ||
        !RIVULET_CUPTI(ProfilerHostEvaluateToGpuValues, get)) {
      return false;
    }
    std::fprintf(file, "%llu,%llu", static_cast<unsigned long long>(time.startTimestamp),
                 static_cast<unsigned long long>(time.endTimestamp));
    for (const double value : values) std::fprintf(file, ",%.6g", value);
    std::fputs("\n", file);
    return true;
  }

  std::vector<std::string> names_;
  std::vector<const char*> metrics_;
  std::vector<uint8_t> counters_, configuration_, image_;
  CUpti_Profiler_Host_Object* host_ = nullptr;
  CUpti_PmSampling_Object* samples_ = nullptr;
  bool running_ = false;
};

Sampler sampler;

}  // namespace

extern "C" __attribute__((visibility("default"))) int StartSampling() {
  sampler.Start();
  return 0;
}
extern "C" __attribute__((visibility("default"))) int StopSampling() {
  sampler.Stop();
  return 0;
}
