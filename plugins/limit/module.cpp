// SPDX-License-Identifier: Apache-2.0
// limit as a module.
#include "../filter_metrics.hpp"

#include <verbena/plugins/limit.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/protocols/storage/module.hpp>

namespace verbena::filters {

namespace {

// What differs between an export and a device.
struct kind {
    const char* what;
    std::string all_operations;
    std::string all_bytes;
    const char* bytes;
};
const kind export_kind = {"export", "export_operations", "export_bytes", "read and write"};
const kind device_kind = {"device", "device_operations", "device_bytes", "read, write and zero"};

std::vector<setting> rates(const kind& k)
{
    const auto operations = [](std::string name, const char* whose) {
        return setting::number(std::move(name), {1, most_limited_operations}, 0,
                               std::string("Operations of ") + whose + " a second")
            .optional("no limit");
    };
    const auto bytes = [&](std::string name, const char* whose) {
        return setting::number(std::move(name), {least_limited_bytes, most_limited_bytes}, 0,
                               std::string("Bytes that ") + whose + " may " + k.bytes + " a second")
            .optional("no limit");
    };
    return {
        operations("client_operations", "a client"),
        bytes("client_bytes", "a client"),
        operations(k.all_operations, "all clients together"),
        bytes(k.all_bytes, "all clients together"),
        setting::number("burst_milliseconds", {1, 60'000}, 1000,
                        "What is saved up at most: what the rate gives in this time"),
    };
}

void check_rates(const kind& k, const setting_values& values, const std::string& name)
{
    for (const std::string& limit :
         {std::string("client_operations"), std::string("client_bytes"), k.all_operations, k.all_bytes}) {
        if (values.find(limit) != nullptr)
            return;
    }
    throw config_error(name + ": limits nothing: write client_operations, client_bytes, " + k.all_operations +
                       " or " + k.all_bytes);
}

limit_options options_of(const kind& k, const setting_values& values)
{
    const auto limit = [&](const std::string& name) {
        return values.find(name) != nullptr ? values.number(name) : std::uint64_t(0);
    };
    limit_options o;
    o.client_operations = limit("client_operations");
    o.client_bytes = limit("client_bytes");
    o.total_operations = limit(k.all_operations);
    o.total_bytes = limit(k.all_bytes);
    o.burst = std::chrono::milliseconds(values.number("burst_milliseconds"));
    o.clients = values.number("clients");
    return o;
}

class limit_module final : public storage::filter_module {
public:
    // --- on files
    std::vector<setting> settings() const override
    {
        auto all = rates(export_kind);
        all.push_back(setting::number("client_queue", {0, most_limited_waiting}, 64,
                                      "Operations of one client that may wait; one more is answered \"try "
                                      "later\""));
        all.push_back(
            setting::number("export_queue", {0, most_limited_waiting}, 1024, "And of all clients together"));
        all.push_back(
            setting::number("clients", {1, most_limited_clients}, 1024, "Clients that are remembered"));
        return all;
    }
    void check(setting_values& values, const std::string& name) const override
    {
        check_rates(export_kind, values, name);
    }
    void put_on(storage::opened_backend& on, const setting_values& values,
                const storage::open_context& context) override
    {
        limit_options o = options_of(export_kind, values);
        o.client_queue = values.number("client_queue");
        o.total_queue = values.number("export_queue");
        auto made = open_limit(std::move(on.files), o);
        if (!made)
            refuse(context.name + ": filter limit", made.error());
        const limit_filter* filter = made->get();
        on.files = std::move(*made);
        const filtered of{context.metrics, "export", context.label};
        on.metrics.push_back(expose_outcomes(of, "verbena_limit_operations_total",
                                             "Operations that met the filter limit, by what became of them.",
                                             6, [filter](const auto& add) {
                                                 const limit_counters c = filter->counters();
                                                 add("passed", c.passed);
                                                 add("waited", c.waited);
                                                 add("refused_client", c.refused_by_client);
                                                 add("refused_export", c.refused_by_total);
                                                 add("refused_newcomer", c.refused_newcomers);
                                                 add("cancelled", c.cancelled);
                                             }));
        on.metrics.push_back(expose_number(
            of, "verbena_limit_wait_seconds_total",
            "How long operations waited for the filter limit, added up.", metric_type::counter, "seconds",
            [filter] { return static_cast<double>(filter->counters().waited_nanoseconds) * 1e-9; }));
        on.metrics.push_back(expose_number(
            of, "verbena_limit_waiting", "Operations that wait for the filter limit now.", metric_type::gauge,
            "operations", [filter] { return static_cast<double>(filter->counters().waiting); }));
        on.metrics.push_back(expose_number(
            of, "verbena_limit_clients", "Clients that the filter limit remembers now.", metric_type::gauge,
            "clients", [filter] { return static_cast<double>(filter->counters().clients); }));
    }

    // --- on devices
    class on_devices final : public storage::block_filter {
    public:
        std::vector<setting> settings() const override
        {
            auto all = rates(device_kind);
            all.push_back(
                setting::number("clients", {1, most_limited_clients}, 4096, "Clients that are remembered"));
            return all;
        }
        void check(setting_values& values, const std::string& name) const override
        {
            check_rates(device_kind, values, name);
        }
        void put_on(storage::opened_block& on, const setting_values& values,
                    const storage::open_block_context& context) override;
    };
    storage::block_filter* for_blocks() noexcept override { return &on_devices_; }

private:
    on_devices on_devices_;
};

void limit_module::on_devices::put_on(storage::opened_block& on, const setting_values& values,
                                      const storage::open_block_context& context)
{
    limit_options o = options_of(device_kind, values);
    // A client has no more under way than its session's queue depth, and no word for "try later".
    o.client_queue = o.total_queue = most_limited_waiting;
    auto made = open_limit(std::move(on.device), o);
    if (!made)
        refuse(context.name + ": filter limit", made.error());
    const block_limit_filter* filter = made->get();
    on.device = std::move(*made);
    const filtered of{context.metrics, "device", context.label};
    on.metrics.push_back(
        expose_outcomes(of, "verbena_block_limit_operations_total",
                        "Operations of devices that met the filter limit, by what became of them.", 4,
                        [filter](const auto& add) {
                            const limit_counters c = filter->counters();
                            add("passed", c.passed);
                            add("waited", c.waited);
                            add("refused", c.refused_by_client + c.refused_by_total + c.refused_newcomers);
                            add("cancelled", c.cancelled);
                        }));
    on.metrics.push_back(expose_number(
        of, "verbena_block_limit_wait_seconds_total",
        "How long operations of devices waited for the filter limit, added up.", metric_type::counter,
        "seconds", [filter] { return static_cast<double>(filter->counters().waited_nanoseconds) * 1e-9; }));
    on.metrics.push_back(expose_number(of, "verbena_block_limit_waiting",
                                       "Operations of devices that wait for the filter limit now.",
                                       metric_type::gauge, "operations",
                                       [filter] { return static_cast<double>(filter->counters().waiting); }));
    on.metrics.push_back(expose_number(
        of, "verbena_block_limit_clients", "Clients of devices that the filter limit remembers now.",
        metric_type::gauge, "clients", [filter] { return static_cast<double>(filter->counters().clients); }));
}

} // namespace

} // namespace verbena::filters

const verbena::module_descriptor verbena::modules::limit = {
    .name = "limit",
    .version = VERBENA_VERSION,
    .summary = "so many operations and bytes a second, for each client and for all",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<filters::limit_module>(); },
};
