import control.pricing.models
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

# What is published never changes; a book that has yet to take effect may be cancelled.
REFUSE_CHANGE = """
CREATE FUNCTION pricing_refuse_published_book() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    cancelling text[] := ARRAY['cancelled_at', 'cancelled_by_id'];
BEGIN
    IF OLD.published_at IS NULL THEN
        IF TG_OP = 'UPDATE' AND NEW.published_at IS NOT NULL THEN
            PERFORM FROM pricing_price AS band
            WHERE band.book_id = NEW.id AND band.input_tokens_min > 0 AND NOT EXISTS (
                SELECT FROM pricing_price AS base
                WHERE base.input_tokens_min = 0
                  AND (base.book_id, base.variant_id, base.tier)
                    = (band.book_id, band.variant_id, band.tier));
            IF FOUND THEN
                RAISE EXCEPTION 'price book % has a band without its base', NEW.id
                    USING ERRCODE = 'integrity_constraint_violation';
            END IF;
        END IF;
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    IF TG_OP = 'UPDATE' AND OLD.cancelled_at IS NULL AND NEW.cancelled_at IS NOT NULL
        AND OLD.effective_at > clock_timestamp()
        AND to_jsonb(NEW) - cancelling = to_jsonb(OLD) - cancelling
    THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'price book % is published and never changes', OLD.id
        USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER pricing_published_book BEFORE UPDATE OR DELETE ON pricing_price_book
    FOR EACH ROW EXECUTE FUNCTION pricing_refuse_published_book();

-- FOR SHARE waits for a publication under way, which locks the book's row.
CREATE FUNCTION pricing_refuse_price_of_published_book() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    books text[] := ARRAY[
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.book_id END,
        CASE WHEN TG_OP <> 'DELETE' THEN NEW.book_id END
    ];
BEGIN
    PERFORM 1 FROM pricing_price_book WHERE id = ANY (books) FOR SHARE;
    PERFORM 1 FROM pricing_price_book WHERE id = ANY (books) AND published_at IS NOT NULL;
    IF FOUND THEN
        RAISE EXCEPTION 'the price belongs to a published price book, which never changes'
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER pricing_price_of_published_book BEFORE INSERT OR UPDATE OR DELETE ON pricing_price
    FOR EACH ROW EXECUTE FUNCTION pricing_refuse_price_of_published_book();
"""


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('catalog', '0001_initial'),
        ('organizations', '0001_initial'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='PriceBook',
            fields=[
                ('id', models.CharField(default=control.pricing.models.new_book_id, max_length=64, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=100)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('effective_at', models.DateTimeField(blank=True, null=True)),
                ('ends_at', models.DateTimeField(blank=True, null=True)),
                ('published_at', models.DateTimeField(blank=True, null=True)),
                ('cancelled_at', models.DateTimeField(blank=True, null=True)),
                ('cancelled_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('organization', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='organizations.organization')),
                ('published_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'db_table': 'pricing_price_book',
                'ordering': ['-created_at'],
            },
        ),
        migrations.CreateModel(
            name='Price',
            fields=[
                ('id', models.CharField(default=control.pricing.models.new_price_id, editable=False, max_length=64, primary_key=True, serialize=False)),
                ('tier', models.CharField(choices=[('priority', 'Priority'), ('default', 'Default'), ('flex', 'Flex'), ('batch', 'Batch')], default='default', max_length=16)),
                ('input_tokens_min', models.PositiveIntegerField(default=0, validators=[django.core.validators.MaxValueValidator(1000000000)], verbose_name='from input tokens')),
                ('input_nanos', models.BigIntegerField(validators=[django.core.validators.MaxValueValidator(1000000000000000)])),
                ('cached_input_nanos', models.BigIntegerField(validators=[django.core.validators.MaxValueValidator(1000000000000000)])),
                ('output_nanos', models.BigIntegerField(validators=[django.core.validators.MaxValueValidator(1000000000000000)])),
                ('variant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='prices', to='catalog.variant')),
                ('book', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='prices', to='pricing.pricebook')),
            ],
            options={
                'db_table': 'pricing_price',
            },
        ),
        migrations.AddConstraint(
            model_name='pricebook',
            constraint=models.CheckConstraint(condition=models.Q(('published_at__isnull', True), ('effective_at__isnull', False), _connector='OR'), name='published_book_is_dated'),
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
        migrations.AddConstraint(
            model_name='price',
            constraint=models.UniqueConstraint(fields=('book', 'variant', 'tier', 'input_tokens_min'), name='price_is_unique'),
        ),
        migrations.AddConstraint(
            model_name='price',
            constraint=models.CheckConstraint(condition=models.Q(('tier__in', ['priority', 'default', 'flex', 'batch'])), name='price_tier_is_known'),
        ),
        migrations.AddConstraint(
            model_name='price',
            constraint=models.CheckConstraint(condition=models.Q(('cached_input_nanos__gte', 0), ('output_nanos__gte', 0), ('input_nanos__gte', models.F('cached_input_nanos'))), name='cached_not_dearer_than_input'),
        ),
        migrations.RunSQL(REFUSE_CHANGE),
    ]
