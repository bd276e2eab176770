"""Context bands, contracts, cancelled books; the tier `standard` becomes `default`, in published
books and in the feed too, which nothing else may change."""

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


# The triggers refuse changes of published prices to everybody; the owner of the tables may put
# them aside. The feed tells each published price anew, under the lock that numbers its versions.
RENAME_TIER = """
ALTER TABLE prices_price DISABLE TRIGGER prices_price_of_published_book;
UPDATE prices_price SET tier = 'default' WHERE tier = 'standard';
ALTER TABLE prices_price ENABLE TRIGGER prices_price_of_published_book;

SELECT pg_advisory_xact_lock(8099000947049456491);
INSERT INTO publish_change (kind, record_id, record, created_at)
SELECT kind, record_id, (record::jsonb || '{"tier": "default"}')::text, now()
FROM (
    SELECT DISTINCT ON (record_id) version, kind, record_id, record
    FROM publish_change WHERE kind = 'price' ORDER BY record_id, version DESC
) AS newest
WHERE record::jsonb ->> 'tier' = 'standard' ORDER BY version;
"""

RENAME_TIER_BACK = """
ALTER TABLE prices_price DISABLE TRIGGER prices_price_of_published_book;
UPDATE prices_price SET tier = 'standard' WHERE tier = 'default';
ALTER TABLE prices_price ENABLE TRIGGER prices_price_of_published_book;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('catalog', '0001_initial'),
        ('prices', '0003_one_book_takes_effect_at_a_time'),
        ('publish', '0001_initial'),
        ('tenants', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='price',
            name='price_is_unique',
        ),
        migrations.RemoveConstraint(
            model_name='price',
            name='price_tier_is_known',
        ),
        migrations.RemoveConstraint(
            model_name='pricebook',
            name='one_book_takes_effect_at_a_time',
        ),
        migrations.AddField(
            model_name='price',
            name='input_tokens_min',
            field=models.PositiveIntegerField(default=0, validators=[django.core.validators.MaxValueValidator(1000000000)], verbose_name='from input tokens'),
        ),
        migrations.AddField(
            model_name='pricebook',
            name='cancelled_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='pricebook',
            name='cancelled_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='pricebook',
            name='ends_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='pricebook',
            name='organization',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.organization'),
        ),
        migrations.AlterField(
            model_name='price',
            name='tier',
            field=models.CharField(choices=[('priority', 'Priority'), ('default', 'Default'), ('flex', 'Flex'), ('batch', 'Batch')], default='default', max_length=16),
        ),
        migrations.RunSQL(RENAME_TIER, RENAME_TIER_BACK),
        migrations.AddConstraint(
            model_name='price',
            constraint=models.UniqueConstraint(fields=('book', 'variant', 'tier', 'input_tokens_min'), name='price_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='price',
            constraint=models.CheckConstraint(condition=models.Q(('tier__in', ['priority', 'default', 'flex', 'batch'])), name='price_tier_is_known'),
        ),
        migrations.AddConstraint(
            model_name='pricebook',
            constraint=models.UniqueConstraint(condition=models.Q(('cancelled_at__isnull', True), ('published_at__isnull', False)), fields=('organization', 'effective_at'), name='one_book_takes_effect_at_a_time', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='pricebook',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__isnull', True), ('organization__isnull', False), _connector='OR'), name='list_prices_have_no_end'),
        ),
        migrations.AddConstraint(
            model_name='pricebook',
            constraint=models.CheckConstraint(condition=models.Q(('ends_at__isnull', True), ('effective_at__isnull', True), ('ends_at__gt', models.F('effective_at')), _connector='OR'), name='contract_ends_after_it_begins'),
        ),
        migrations.AddConstraint(
            model_name='pricebook',
            constraint=models.CheckConstraint(condition=models.Q(('cancelled_at__isnull', True), models.Q(('cancelled_at__lt', models.F('effective_at')), ('published_at__isnull', False)), _connector='OR'), name='cancelled_before_it_took_effect'),
        ),
    ]
