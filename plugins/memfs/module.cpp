// SPDX-License-Identifier: Apache-2.0
// memfs as a module: files in memory.
#include <verbena/plugins/memfs.hpp>
#include <verbena/plugins/modules.hpp>

#include <verbena/protocols/storage/module.hpp>

namespace verbena::memfs {

namespace {

constexpr std::uint64_t most_snapshots = 1024;
constexpr std::uint64_t most_snapshot_files = std::uint64_t(1) << 20;
constexpr std::size_t max_series = 64; // exports with series of their own

class memfs_module final : public storage::backend_module {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::flag("snapshots", false,
                          "mkdir in .snapshot, which the root has and does not list, takes a snapshot of the "
                          "whole export, and rmdir there ends it"),
            setting::number("snapshots_max", number_range{1, most_snapshots}, memfs_options().max_snapshots,
                            "Snapshots at once"),
            setting::number("snapshot_files", number_range{1, most_snapshot_files},
                            memfs_options().max_snapshot_files,
                            "Files of one snapshot, for the copy of which the export waits"),
        };
    }

    storage::opened_backend open(const setting_values& values, const storage::open_context& context) override
    {
        memfs_options options;
        options.snapshots = values.flag("snapshots");
        options.max_snapshots = static_cast<std::uint32_t>(values.number("snapshots_max"));
        options.max_snapshot_files = static_cast<std::uint32_t>(values.number("snapshot_files"));
        options.root_mode = 01777; // as /tmp: nobody is there to hand out rights
        options.read_only = context.read_only;
        auto opened = open_memfs(options, context.lane);
        if (!opened)
            throw config_error(context.name + ": " + opened.error().message());
        storage::opened_backend out;
        out.files = std::move(*opened);
        out.source = "memfs";
        out.options = {"sync"};
        out.local_writers = false;
        out.metrics.push_back(
            context.metrics.add({"verbena_memfs_lent_bytes",
                                 "Memory of files that READs are being sent from.",
                                 metric_type::gauge,
                                 "bytes",
                                 {"export"},
                                 max_series},
                                [label = context.label, files = out.files.get()](metric_sink& to) {
                                    to.value({label}, double(lent_bytes_of(*files)));
                                }));
        if (options.snapshots) {
            out.options.emplace_back("snapshots");
            const auto add = [&](const char* name, const char* help, const char* unit, auto value) {
                out.metrics.push_back(context.metrics.add(
                    {name, help, metric_type::gauge, unit, {"export"}, max_series},
                    [label = context.label, files = out.files.get(), value](metric_sink& to) {
                        to.value({label}, double(snapshot_counts_of(*files).*value));
                    }));
            };
            add("verbena_memfs_snapshots", "Snapshots of an export.", "snapshots",
                &snapshot_counts::snapshots);
            add("verbena_memfs_snapshot_held_bytes",
                "Bytes of data that snapshots alone keep: files have others by now.", "bytes",
                &snapshot_counts::held_bytes);
        }
        out.notes = "in memory: files are gone when the daemon ends";
        return out;
    }
};

} // namespace

} // namespace verbena::memfs

const verbena::module_descriptor verbena::modules::memfs = {
    .name = "memfs",
    .version = VERBENA_VERSION,
    .summary = "files in memory, gone when the program ends",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<memfs::memfs_module>(); },
};
