// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/resource_metrics.hpp>
#include <verbena/services/metrics.hpp>

#include <chrono>
#include <ctime>
#include <dirent.h>
#include <fstream>
#include <mutex>
#include <sys/resource.h>
#include <unistd.h>

namespace verbena::metrics {

namespace {

double cpu_seconds()
{
    timespec t{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

double resident_bytes()
{
    std::ifstream in("/proc/self/statm");
    double size = 0, resident = 0;
    in >> size >> resident;
    return resident * double(::sysconf(_SC_PAGESIZE));
}

double count_descriptors()
{
    DIR* directory = ::opendir("/proc/self/fd");
    if (directory == nullptr)
        return 0;
    double n = -3; // ".", ".." and the one that lists them
    while (::readdir(directory) != nullptr)
        ++n;
    ::closedir(directory);
    return n;
}

// To count thousands takes a millisecond, and two families of a scrape want to know.
double open_descriptors()
{
    static std::mutex mutex;
    static std::chrono::steady_clock::time_point counted_at{};
    static double count = 0;
    const std::lock_guard lock(mutex);
    const auto now = std::chrono::steady_clock::now();
    if (counted_at == std::chrono::steady_clock::time_point() ||
        now - counted_at > std::chrono::milliseconds(200)) {
        count = count_descriptors();
        counted_at = now;
    }
    return count;
}

double most_descriptors()
{
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return double(limit.rlim_cur);
}

} // namespace

metric_registrations expose_process(metric_registry& registry)
{
    metric_registrations all;
    const auto add = [&](const char* name, const char* help, metric_type type, const char* unit, auto read) {
        all.push_back(
            registry.add({name, help, type, unit}, [read](metric_sink& out) { out.value({}, read()); }));
    };
    add("process_cpu_seconds_total", "User and system CPU time spent.", metric_type::counter, "seconds",
        cpu_seconds);
    add("process_resident_memory_bytes", "Resident memory.", metric_type::gauge, "bytes", resident_bytes);
    add("process_open_fds", "Open file descriptors.", metric_type::gauge, "descriptors", open_descriptors);
    add("process_max_fds", "Most file descriptors that may be open.", metric_type::gauge, "descriptors",
        most_descriptors);
    add("process_start_time_seconds", "When the process started, in seconds since the epoch.",
        metric_type::gauge, "seconds", [start = double(std::time(nullptr))] { return start; });
    metric_group resources(registry);
    add_resource(resources, "descriptors", open_descriptors, most_descriptors);
    append(all, resources.take());
    all.push_back(registry.add(
        {"verbena_build_info", "Always 1; the label tells the version.", metric_type::gauge, "", {"version"}},
        [](metric_sink& out) { out.value({VERBENA_VERSION}, 1); }));
    return all;
}

} // namespace verbena::metrics
