// SPDX-License-Identifier: Apache-2.0
// The families verbena_export_*: what is done to each export, and what room it has. And the lines of the log about
// operations that its file system failed.
#include <verbena/protocols/nfs/server/export_room.hpp>
#include <verbena/protocols/nfs/server/export_traffic.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/rpc/call.hpp>

#include <array>
#include <chrono>
#include <initializer_list>
#include <new>
#include <optional>

namespace verbena::nfs {

namespace {

metric_family of_exports(const char* name, const char* help, metric_type type, const char* unit)
{
    return {name, help, type, unit, {"export"}, export_table::max_exports};
}

metric_family of_exports(const char* name, const char* help, const char* unit, const char* label,
                         std::size_t values)
{
    return {name, help, metric_type::counter, unit, {"export", label}, export_table::max_exports * values};
}

struct failure_words {
    std::string_view label;
    std::string_view cause;
    std::string_view cure;
};
constexpr std::array<failure_words, export_failure_count> words_of_failures{
    {{"space", "No space left on device",
      "remove files or enlarge the file system (df, df -i); nothing has to be restarted"},
     {"quota", "Disk quota exceeded",
      "raise the quota of the files' owner (quota, repquota), or have it make room; df does not show it"},
     {"io", "Input/output error", "look at the disk, and at what the kernel's log says of it (dmesg)"},
     {"read_only", "Read-only file system",
      "look why: the kernel mounts a file system read-only after an error of its disk (dmesg), and a unit "
      "shows "
      "folders so (ReadWritePaths=); check it, and mount it to be written (mount -o remount,rw)"}}};

} // namespace

failure_lines& failure_lines::of_process() noexcept
{
    static failure_lines all;
    return all;
}

bool failure_lines::admit(log_limiter& own, std::chrono::steady_clock::time_point now,
                          std::uint64_t& suppressed, std::uint64_t& left_out) noexcept
{
    if (!own.admit(now, suppressed))
        return false;
    if (std::uint64_t told_below = 0; !all_.admit(now, told_below)) {
        left_out_.fetch_add(1 + suppressed, std::memory_order_relaxed);
        return false;
    }
    left_out = left_out_.exchange(0, std::memory_order_relaxed);
    return true;
}

void note_failure(export_counters& of, export_failure why, const rpc::call& c,
                  std::string_view operation) noexcept
{
    of.of(why).add();
    const failure_words& words = words_of_failures[std::size_t(why)];
    if (!log_enabled(log_level::warning))
        return;
    std::uint64_t suppressed = 0, left_out = 0;
    if (!of.lines->admit(of.failures_told[std::size_t(why)], std::chrono::steady_clock::now(), suppressed,
                         left_out))
        return;
    const auto tell = [](std::initializer_list<log_field> fields) {
        log(log_level::warning, "nfs", "the file system of an export failed an operation", fields);
    };
    try {
        const trace_name call(c.trace());
        const log_field what[] = {{"export", of.exported},      {"operation", operation},
                                  {"client", c.from().address}, {"call", call},
                                  {"cause", words.cause},       {"cure", words.cure}};
        if (suppressed == 0 && left_out == 0)
            tell({what[0], what[1], what[2], what[3], what[4], what[5]});
        else
            tell({what[0],
                  what[1],
                  what[2],
                  what[3],
                  what[4],
                  what[5],
                  {"suppressed", suppressed},
                  {"left_out", left_out}});
    } catch (const std::bad_alloc&) { // the count tells it
    }
}

metric_registrations expose(metric_registry& registry, const export_traffic& traffic,
                            const std::string& pseudo)
{
    using c = export_counters;
    metric_group group(registry);
    const auto sum = [&traffic](counter c::* which) { return static_cast<double>(traffic.total(which)); };
    group.add(of_exports(
                  "verbena_export_operations_total",
                  "Operations of NFS on what is in an export: procedures of version 3, and the operations of "
                  "version 4 that verbena_nfs4_operation_seconds has. They are reads, writes or others.",
                  "operations", "kind", 3),
              [sum, pseudo](metric_sink& out) {
                  out.value({pseudo, "read"}, sum(&c::reads));
                  out.value({pseudo, "write"}, sum(&c::writes));
                  out.value({pseudo, "other"}, sum(&c::others));
              });
    group.add(of_exports("verbena_export_bytes_total",
                         "Bytes of files that READ returned and WRITE took, by export.", "bytes", "direction",
                         2),
              [sum, pseudo](metric_sink& out) {
                  out.value({pseudo, "read"}, sum(&c::bytes_read));
                  out.value({pseudo, "write"}, sum(&c::bytes_written));
              });
    group.add(
        of_exports("verbena_export_errors_total",
                   "Operations that failed by the file system of an export: space (NOSPC: it is full), quota "
                   "(DQUOT), io (IO, NXIO), or read_only (ROFS, though the export is not).",
                   "operations", "error", export_failure_count),
        [&traffic, pseudo](metric_sink& out) {
            for (std::size_t i = 0; i < export_failure_count; ++i)
                out.value({pseudo, std::string(words_of_failures[i].label)},
                          static_cast<double>(traffic.total(export_failure(i))));
        });
    return group.take();
}

metric_registrations expose(metric_registry& registry, const export_room& room, const std::string& pseudo)
{
    metric_group group(registry);
    const auto level = [&](const char* name, const char* help, const char* unit, auto of) {
        group.add(of_exports(name, help, metric_type::gauge, unit), [&room, of, pseudo](metric_sink& out) {
            if (const auto last = room.is_shown() ? room.last() : std::nullopt)
                out.value({pseudo}, of(*last));
        });
    };
    using look = export_room::look;
    level("verbena_export_size_bytes", "Size of the file system of an export.", "bytes",
          [](const look& l) { return double(l.room.total_bytes); });
    level("verbena_export_free_bytes", "Of that, what is free.", "bytes",
          [](const look& l) { return double(l.room.free_bytes); });
    level("verbena_export_available_bytes", "Of that, what users other than root may take.", "bytes",
          [](const look& l) { return double(l.room.available_bytes); });
    level("verbena_export_files",
          "Files that the file system of an export has room for (inodes); 0 where it has no limit.", "files",
          [](const look& l) { return double(l.room.total_files); });
    level("verbena_export_free_files", "Of these, how many are free.", "files",
          [](const look& l) { return double(l.room.free_files); });
    level("verbena_export_room_age_seconds",
          "How long ago the file system of an export said how much room it has. It is asked each 30 s; while "
          "it hangs or is "
          "not there this grows, and the old numbers stay.",
          "seconds", [](const look& l) { return std::chrono::duration<double>(l.age).count(); });
    return group.take();
}

} // namespace verbena::nfs
