// SPDX-License-Identifier: Apache-2.0
// memfs as a module: files in memory.
#include <verbena/plugins/memfs.hpp>
#include <verbena/plugins/modules.hpp>

#include <verbena/protocols/storage/module.hpp>

namespace verbena::memfs {

namespace {

class memfs_module final : public storage::backend_module {
public:
    storage::opened_backend open(const setting_values&, const storage::open_context& context) override
    {
        memfs_options options;
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
