// SPDX-License-Identifier: Apache-2.0
// fileblk as a module: a file or a block device of this host.
#include <verbena/core/module/start_error.hpp>
#include <verbena/plugins/fileblk.hpp>
#include <verbena/plugins/modules.hpp>

#include <verbena/core/byte_size.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <filesystem>

namespace verbena::fileblk {

namespace {

constexpr std::size_t max_device_series = 4096;

template<class Number>
void show(metric_group& group, const fileblk_device& device, const std::string& label, const char* name,
          const char* help, const char* unit, Number number)
{
    group.add({name, help, metric_type::counter, unit, {"device"}, max_device_series},
              [&device, label, number](metric_sink& out) {
                  out.value({label}, static_cast<double>(device.counters().*number));
              });
}

metric_registrations expose(metric_registry& registry, const fileblk_device& device, const std::string& label)
{
    metric_group group(registry);
    group.add({"verbena_fileblk_transfers_total",
               "Reads and writes of a file or block device, by the way that they took.",
               metric_type::counter,
               "operations",
               {"device", "way"},
               3 * max_device_series},
              [&device, label](metric_sink& out) {
                  const fileblk_counters c = device.counters();
                  out.value({label, "direct"}, static_cast<double>(c.direct - std::min(c.copied, c.direct)));
                  out.value({label, "direct_copied"}, static_cast<double>(c.copied));
                  out.value({label, "page_cache"}, static_cast<double>(c.page_cache));
              });
    show(group, device, label, "verbena_fileblk_syncs_total",
         "Syncs of a file or block device; one serves all flushes that wait.", "syncs",
         &fileblk_counters::syncs);
    show(group, device, label, "verbena_fileblk_sync_failures_total",
         "Syncs and writes with FUA that failed: after one, flushes of the device fail until a restart.",
         "syncs", &fileblk_counters::sync_failures);
    return group.take();
}

class fileblk_module final : public storage::block_module {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::text("path", "",
                          "A regular file or a block device; a relative path counts from the folder in which "
                          "the program was started")
                .form("PATH")
                .main(),
            setting::text(
                "size", "",
                "Creates the file with so many bytes if there is none, with K, M, G or T for powers of "
                "1024; a file of another size is refused")
                .form("SIZE"),
            setting::number("block_size", {512, 4096}, 512, "Bytes of a block: 512, 1024, 2048 or 4096"),
            setting::word("direct", {"auto", "on", "off"}, "auto",
                          "Whether reads and writes go round the page cache (O_DIRECT); auto: where that "
                          "works with block_size"),
        };
    }
    void check(setting_values& values, const std::string& name) const override
    {
        auto& path = std::get<std::string>(values.find("path")->data);
        if (path.empty())
            throw config_error(name + " needs a path: write --device NAME=/srv/disk.img, or path = "
                                      "\"/srv/disk.img\" in its table");
        path = std::filesystem::absolute(path).lexically_normal().string();
        (void)options_of(values, name);
    }
    storage::opened_block open(const setting_values& values,
                               const storage::open_block_context& context) override
    {
        fileblk_options o = options_of(values, context.name);
        o.read_only = context.read_only;
        storage::opened_block out;
        try {
            auto device = open_fileblk(o, context.lane);
            out.source = o.path;
            out.notes = device->notes();
            out.metrics = expose(context.metrics, *device, context.label);
            out.size = device.get();
            out.device = std::move(device);
        } catch (const open_failure& e) {
            throw_start_failure(error::from_errno(e.errno_value(), ""), context.name + ": " + e.what());
        }
        return out;
    }

private:
    static fileblk_options options_of(const setting_values& values, const std::string& name)
    {
        fileblk_options o;
        o.path = values.text("path");
        o.block_size = static_cast<std::uint32_t>(values.number("block_size"));
        if (const std::string& text = values.text("size"); !text.empty()) {
            const auto size = parse_byte_size(text);
            if (!size || *size == 0)
                throw config_error(name + ": size " + text + " is no size: write bytes, or as 64M or 10G");
            o.size = *size;
        }
        const std::string& direct = values.text("direct");
        o.direct = direct == "on"    ? direct_mode::on
                   : direct == "off" ? direct_mode::off
                                     : direct_mode::automatic;
        return o;
    }
};

} // namespace

} // namespace verbena::fileblk

const verbena::module_descriptor verbena::modules::fileblk = {
    .name = "fileblk",
    .version = VERBENA_VERSION,
    .summary = "a block device out of a file or a block device of this host",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<fileblk::fileblk_module>(); },
};
