import django.core.validators
from django.db import migrations, models

import control.catalog.resources

FLAGS = {
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "-pp": "pipeline_parallel_size",
    "--max-model-len": "",
    "--max-num-seqs": "",
}


def declare_resources(apps, schema_editor):
    """Move what arguments said of the size of replicas into the variant's fields. The rest of these
    flags repeated the context and the slots, which the platform passes on itself now."""
    alias = schema_editor.connection.alias
    variants = apps.get_model("catalog", "Variant").objects.using(alias)
    deployments = apps.get_model("catalog", "Deployment").objects.using(alias)
    for variant in variants.filter(archived_at__isnull=True):
        take_flags(variant, variant)
        variant.save(update_fields=[*FIELDS, "engine_arguments"])
    for row in deployments.filter(ended_at__isnull=True).select_related("variant"):
        if row.engine == "vllm" and take_flags(row, row.variant):
            row.save(update_fields=["engine_arguments"])
            row.variant.save(update_fields=[*FIELDS])


FIELDS = ("tensor_parallel_size", "pipeline_parallel_size")


def take_flags(row, variant):
    """Take the flags out of a row's arguments; return whether there were any."""
    kept, arguments = [], list(row.engine_arguments)
    while arguments:
        argument = arguments.pop(0)
        name, has_value, value = argument.partition("=")
        flag = name.replace("_", "-") if name.startswith("--") else name
        if flag not in FLAGS:
            kept.append(argument)
            continue
        value = value if has_value else (arguments.pop(0) if arguments else "")
        if FLAGS[flag] and value.isdecimal():
            setattr(variant, FLAGS[flag], int(value))
    is_changed = kept != row.engine_arguments
    row.engine_arguments = kept
    return is_changed


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0005_fleet_registered_at'),
    ]

    operations = [
        migrations.AddField(
            model_name='variant',
            name='accelerator',
            field=models.CharField(blank=True, db_default='', default='', help_text="Words of the name of the GPUs, such as H100 or A100 80GB; GPU for any. A replica takes tensor × pipeline parallel size of them. Leave it empty for a CPU.", max_length=64, validators=[control.catalog.resources.check_accelerator]),
        ),
        migrations.AddField(
            model_name='variant',
            name='tensor_parallel_size',
            field=models.PositiveIntegerField(db_default=1, default=1, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1024)]),
        ),
        migrations.AddField(
            model_name='variant',
            name='pipeline_parallel_size',
            field=models.PositiveIntegerField(db_default=1, default=1, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1024)]),
        ),
        migrations.RunPython(declare_resources, migrations.RunPython.noop),
    ]
